package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/conclave-go/conclave"
)

func ExampleNode_NewSession() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	session, err := node.NewSession(ctx, &conclave.SessionConfig{
		Name:      "night shift",
		TTL:       30 * time.Second,
		LockDelay: 5 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	lock := session.FencedLock("invoices")
	if _, err := lock.Lock(ctx); err != nil {
		log.Fatal(err)
	}

	if err := node.CloseSession(ctx, session.ID()); err != nil { // by force
		log.Fatal(err)
	}
	<-session.Done()
	_, err = node.FencedLock("invoices").TryLock(ctx)
	fmt.Println(errors.Is(err, conclave.ErrLockDelay))
	// Output: true
}

// A session that its owner closes has no lock-delay.
func ExampleSession() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	session, err := node.NewSession(ctx, nil) // all defaults: a lock-delay of 15 s
	if err != nil {
		log.Fatal(err)
	}
	if _, err := session.FencedLock("invoices").Lock(ctx); err != nil {
		log.Fatal(err)
	}
	if err := session.Close(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = node.FencedLock("invoices").TryLock(ctx)
	fmt.Println(err, errors.Is(session.Err(), conclave.ErrSessionExpired))
	// Output: <nil> true
}

// The locks and leaderships of a process that crashes are free within a second.
func ExampleConfig_sessionChecks() {
	ctx := context.Background()
	node, err := conclave.Open(ctx, &conclave.Config{
		SessionChecks: []string{conclave.ProcessCheck}, // of the node's own session
	})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close(context.Background())

	if _, err := node.Election("scheduler").Campaign(ctx, nil); err != nil {
		log.Fatal(err)
	}
	for session := range node.Sessions(ctx) {
		fmt.Println(session.Checks)
	}
	// Output: [process]
}

func ExampleCheck() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	disk, err := node.RegisterCheck(ctx, "disk", 0) // 0: without a TTL
	if err != nil {
		log.Fatal(err)
	}
	session, err := node.NewSession(ctx, &conclave.SessionConfig{Checks: []string{"gossip", "disk"}})
	if err != nil {
		log.Fatal(err)
	}
	if err := disk.Fail(ctx); err != nil {
		log.Fatal(err)
	}
	<-session.Done() // its locks are granted to others after the lock-delay
	_, err = node.NewSession(ctx, &conclave.SessionConfig{Checks: []string{"disk"}})
	fmt.Println(errors.Is(err, conclave.ErrCheckCritical))
	// Output: true
}

func ExampleNode_AttachSession() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "conclave-attach-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	node := openIn(ctx, dir)

	session, err := node.NewSession(ctx, &conclave.SessionConfig{TTL: conclave.NoTTL, NoChecks: true})
	if err != nil {
		log.Fatal(err)
	}
	first, err := session.FencedLock("migration").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	note := session.ID().String() // keep it where the next process can read it

	node.Close(ctx)
	node = openIn(ctx, dir) // the next process
	defer node.Close(context.Background())

	_, err = node.FencedLock("migration").TryLock(ctx)
	fmt.Println("still held:", errors.Is(err, conclave.ErrLocked))
	id, err := conclave.ParseSessionID(note)
	if err != nil {
		log.Fatal(err)
	}
	session, err = node.AttachSession(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	second, err := session.FencedLock("migration").Lock(ctx) // claims the hold, ahead of all waiters
	fmt.Println(err, second > first)
	// Output:
	// still held: true
	// <nil> true
}
