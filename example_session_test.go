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
	defer node.Close(ctx)

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

// What is closed in good order has no lock-delay.
func ExampleSession() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(ctx)

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

func ExampleCheck() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(ctx)

	disk, err := node.RegisterCheck(ctx, "disk", 0) // with a TTL it would have to Pass in time
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
	<-session.Done() // and what it held goes to others, after the lock-delay
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

	session, err := node.NewSession(ctx, &conclave.SessionConfig{TTL: conclave.NoTTL, Checks: conclave.NoChecks})
	if err != nil {
		log.Fatal(err)
	}
	first, err := session.FencedLock("migration").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	note := session.ID().String() // keep it where the next process finds it

	node.Close(ctx)
	node = openIn(ctx, dir) // as the next process does
	defer node.Close(ctx)

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
	second, err := session.FencedLock("migration").Lock(ctx) // takes it over, ahead of who waits
	fmt.Println(err, second > first)
	// Output:
	// still held: true
	// <nil> true
}
