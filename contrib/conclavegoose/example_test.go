package conclavegoose_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing/fstest"

	"github.com/pressly/goose/v3"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/conclavegoose"
)

func ExampleNew() {
	ctx := context.Background()
	node, err := conclave.Open(ctx, nil) // a group of one; a program names its other members
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close(ctx)
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection would have a database of its own

	files := fstest.MapFS{"1_invoices.sql": {Data: []byte("-- +goose Up\nCREATE TABLE invoices (id INTEGER);")}}
	locker := conclavegoose.New(node, "migrations")
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithLocker(locker))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, done := locker.CancelOnLoss(ctx)
	defer done()
	results, err := provider.Up(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range results {
		fmt.Println("applied", r.Source.Version)
	}
	// Output: applied 1
}
