package fencing

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/conclave-go/conclave"
)

// Dialect is a kind of database.
type Dialect int

// The kinds of databases.
const (
	PostgreSQL Dialect = iota + 1 // 9.5 or later
	MySQL                         // and MariaDB; tables of InnoDB
	SQLite                        // 3.35 or later. Set a busy timeout, or transactions fail where they would wait
)

// String returns the name in lower case.
func (d Dialect) String() string {
	names := [SQLite]string{"postgresql", "mysql", "sqlite"}
	if d < PostgreSQL || d > SQLite {
		return "unknown"
	}
	return names[d-1]
}

const defaultTable = "conclave_fences"

// Schema returns the statement that creates the table of an [SQL] with the default name, if it
// does not exist. It returns "" for an unknown dialect.
func Schema(d Dialect) string {
	statement, err := SQL{Dialect: d}.Schema()
	if err != nil {
		return ""
	}
	return statement
}

// Schema returns the statement that creates the table, if it does not exist. It returns
// conclave.ErrInvalid for an unknown dialect and for an invalid name.
func (s SQL) Schema() (string, error) {
	q, err := s.statements()
	return q.schema, err
}

// statements are the SQL of a dialect for a table. Names of locks are compared byte by byte: no
// collation, no padding and no encoding of the database may take one for another.
type statements struct {
	schema string
	lock   string // locks the row, and returns its epoch and count
	shared string // locks it beside others that do, and returns the same; in SQLite the transaction's view of the database is enough
	create string // of a missing row; "": lock does it, and raises the fence as well
	update string // of a row that is locked
	read   string
	// mark is executed after the row is locked, and marked before the commit: it fails if the
	// transaction has ended since. "": the database itself refuses what follows, or the commit.
	mark, marked string
}

// tableName keeps the meaning of a table's name independent of quotes, and injections out.
var tableName = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,62}$`)

func (s SQL) statements() (statements, error) {
	table := s.Table
	if table == "" {
		table = defaultTable
	}
	if !tableName.MatchString(table) {
		return statements{}, fmt.Errorf("%w table %q: want lower-case letters, digits and underscores, with at most one dot", conclave.ErrInvalid, table)
	}
	switch s.Dialect {
	case PostgreSQL:
		return postgresql(quote(table, `"`)), nil
	case MySQL:
		return mysql(quote(table, "`")), nil
	case SQLite:
		return sqlite(quote(table, `"`)), nil
	}
	return statements{}, fmt.Errorf("%w dialect %d: want PostgreSQL, MySQL or SQLite", conclave.ErrInvalid, s.Dialect)
}

func quote(table, mark string) string {
	return mark + strings.ReplaceAll(table, ".", mark+"."+mark) + mark
}

// upsert is one statement that inserts or raises the row, holds it until the end of the
// transaction, and returns what it is afterwards. It also writes the row where nothing changes. So
// PostgreSQL at REPEATABLE READ, whose snapshot may be older than the wait for the row, fails with a
// serialization error instead of going on; and SQLite takes its write lock with the transaction's first
// statement, as BEGIN IMMEDIATE does, without a read lock that another writer could invalidate.
const upsert = `INSERT INTO %[1]s AS stored (name, epoch, count) VALUES (%[2]s)
ON CONFLICT (name) DO UPDATE SET
	epoch = CASE WHEN stored.epoch < excluded.epoch THEN excluded.epoch ELSE stored.epoch END,
	count = CASE WHEN stored.epoch < excluded.epoch OR stored.epoch = excluded.epoch AND stored.count < excluded.count
		THEN excluded.count ELSE stored.count END
RETURNING epoch, count`

func postgresql(table string) statements {
	return statements{
		schema: `CREATE TABLE IF NOT EXISTS ` + table + ` (
	name  BYTEA   NOT NULL PRIMARY KEY, -- of the lock, for people convert_from(name, 'UTF8')
	epoch INTEGER NOT NULL,
	count BIGINT  NOT NULL
)`,
		lock:   fmt.Sprintf(upsert, table, "$1, $2, $3"),
		shared: "SELECT epoch, count FROM " + table + " WHERE name = $1 FOR SHARE",
		read:   "SELECT epoch, count FROM " + table + " WHERE name = $1",
	}
}

func sqlite(table string) statements {
	return statements{
		schema: `CREATE TABLE IF NOT EXISTS ` + table + ` (
	name  BLOB    NOT NULL PRIMARY KEY, -- of the lock, for people CAST(name AS TEXT)
	epoch INTEGER NOT NULL,
	count INTEGER NOT NULL
)`,
		lock:   fmt.Sprintf(upsert, table, "?, ?, ?"),
		shared: "SELECT epoch, count FROM " + table + " WHERE name = ?",
		read:   "SELECT epoch, count FROM " + table + " WHERE name = ?",
	}
}

// mysql locks with a SELECT. An INSERT that meets a row which another transaction then rolls back leaves gap
// locks, on which two others deadlock; a locking read of an existing row by its primary key takes a lock on that row
// only. It makes no snapshot either: at REPEATABLE READ that is made by the first read that does not lock.
//
// A deadlock, and a statement that commits implicitly, end the transaction, and MySQL executes what follows
// without one. Its COMMIT succeeds all the same; a savepoint does not outlive its transaction.
func mysql(table string) statements {
	return statements{
		schema: `CREATE TABLE IF NOT EXISTS ` + table + ` (
	name  VARBINARY(512) NOT NULL PRIMARY KEY, -- of the lock, in UTF-8
	epoch INT            NOT NULL,
	count BIGINT         NOT NULL
) ENGINE = InnoDB`,
		lock:   "SELECT epoch, count FROM " + table + " WHERE name = ? FOR UPDATE",
		shared: "SELECT epoch, count FROM " + table + " WHERE name = ? LOCK IN SHARE MODE", // FOR SHARE is unknown to MariaDB
		create: "INSERT INTO " + table + " (name, epoch, count) VALUES (?, 0, 0) ON DUPLICATE KEY UPDATE count = count",
		update: "UPDATE " + table + " SET epoch = ?, count = ? WHERE name = ?",
		read:   "SELECT epoch, count FROM " + table + " WHERE name = ?",
		mark:   "SAVEPOINT conclave_fence",
		marked: "RELEASE SAVEPOINT conclave_fence",
	}
}
