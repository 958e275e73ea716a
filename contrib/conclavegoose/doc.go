// Package conclavegoose lets one process of several run the migrations of goose
// (github.com/pressly/goose/v3), by a lock of a conclave group instead of one in the database.
//
//	locker := conclavegoose.New(node, "migrations")
//	provider, err := goose.NewProvider(dialect, db, files, goose.WithLocker(locker))
//	results, err := provider.Up(ctx)
//
// It is meant for databases for which goose has no lock of its own. Where it has one, as for
// PostgreSQL, that is the better choice: it ends with the connection on which the migrations run.
//
// What it does not promise: that a process which has lost the lock stops. goose has no loss signal
// and the database does not check a fence, so a process that was paused in the middle of a migration
// continues with it beside the next holder. [Locker.CancelOnLoss] returns a context that is cancelled
// on a loss, for goose to run under, and with it the statement under way. A migration
// written in Go may write [Locker.Fence] in its transaction, to a row that refuses a smaller one.
//
// The package is a module of its own: programs without it link no goose.
package conclavegoose
