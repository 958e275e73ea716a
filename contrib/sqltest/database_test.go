//go:build unix

package sqltest

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/conclave-go/conclave/fencing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// database is a server, or a file, that the suite runs on.
type database struct {
	fencing.SQL
	driver, source string
	db             *sql.DB
}

// connect opens the database with the options, in the source's own syntax, and logs its version.
func connect(t *testing.T, d fencing.Dialect, driver, source, version string) *database {
	t.Helper()
	b := &database{fencing.SQL{Dialect: d}, driver, source, nil}
	b.db = b.open(t, "")
	var v string
	if err := b.db.QueryRowContext(t.Context(), version).Scan(&v); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, server version %s", d, v)
	return b
}

// open returns another pool of connections, with options appended to the source.
func (b *database) open(t *testing.T, options string) *sql.DB {
	t.Helper()
	db, err := sql.Open(b.driver, b.source+options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// query replaces each question mark by the dialect's placeholder.
func (b *database) query(text string) string {
	if b.Dialect != fencing.PostgreSQL {
		return text
	}
	for i := '1'; strings.Contains(text, "?"); i++ {
		text = strings.Replace(text, "?", "$"+string(i), 1)
	}
	return text
}

func (b *database) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	if _, err := b.db.ExecContext(t.Context(), b.query(text), args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// create makes the guard's table.
func (b *database) create(t *testing.T) {
	t.Helper()
	schema, err := b.Schema()
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, schema)
}

func postgresql(t *testing.T) *database {
	t.Helper()
	server, initdb := binary(t, "postgres"), binary(t, "initdb")
	a := unprivileged(t, "postgres")
	dir := a.folder(t)
	data := filepath.Join(dir, "data")
	a.run(t, dir, initdb, "--pgdata="+data, "--username=fence", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
	a.serve(t, "ready to accept connections", syscall.SIGINT, dir, server, "-D", data, "-k", dir,
		"-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60")
	return connect(t, fencing.PostgreSQL, "pgx", "host="+dir+" user=fence dbname=postgres", "SHOW server_version")
}

func mariadb(t *testing.T) *database {
	t.Helper()
	server, install := binary(t, "mariadbd"), binary(t, "mariadb-install-db")
	a := unprivileged(t, "mysql")
	dir := a.folder(t)
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "s")
	a.run(t, dir, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")
	a.serve(t, "ready for connections", syscall.SIGTERM, dir, server, "--no-defaults", "--datadir="+data, "--socket="+socket,
		"--skip-networking", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M", "--max-connections=60")
	b := connect(t, fencing.MySQL, "mysql", "root@unix("+socket+")/mysql", "SELECT VERSION()")
	b.exec(t, "CREATE DATABASE fence CHARACTER SET utf8mb4")
	b.source = "root@unix(" + socket + ")/fence"
	b.db = b.open(t, "")
	return b
}

// sqlite opens a file without syncs: power loss is not tested. Transactions contend by polling, so one may wait for long.
func sqlite(t *testing.T) *database {
	t.Helper()
	file := url.URL{Scheme: "file", Path: filepath.Join(t.TempDir(), "fence.db")}
	return connect(t, fencing.SQLite, "sqlite", file.String()+"?_pragma=busy_timeout(300000)&_pragma=synchronous(off)", "SELECT sqlite_version()")
}
