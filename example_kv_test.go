package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/conclave-go/conclave"
)

func ExampleKV() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	kv := node.KV()
	e, err := kv.Put(ctx, "config/port", []byte("8080"))
	if err != nil {
		log.Fatal(err)
	}
	_, swapped, err := kv.CompareAndSwap(ctx, "config/port", e.ModifyIndex, []byte("8081"))
	fmt.Println(swapped, err)
	_, swapped, err = kv.CompareAndSwap(ctx, "config/port", e.ModifyIndex, []byte("8082"))
	fmt.Println(swapped, err) // the key has another ModifyIndex now
	e, err = kv.Get(ctx, "config/port")
	fmt.Println(string(e.Value), err)
	// Output:
	// true <nil>
	// false <nil>
	// 8081 <nil>
}

func ExampleKV_Keys() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())
	kv := node.KV()
	for _, key := range []string{"config/port", "config/db/host", "config/db/user", "orders/7"} {
		if _, err := kv.Put(ctx, key, nil); err != nil {
			log.Fatal(err)
		}
	}

	keys, err := kv.Keys(ctx, "config/", "/")
	fmt.Println(keys, err)
	keys, err = kv.Keys(ctx, "config/", "")
	fmt.Println(keys, err)
	// Output:
	// [config/db/ config/port] <nil>
	// [config/db/host config/db/user config/port] <nil>
}

func ExampleKV_Txn() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())
	kv := node.KV()

	for range 2 {
		_, err := kv.Txn(ctx,
			conclave.OpExpect("orders/7", 0), // must not exist
			conclave.OpPut("orders/7", []byte("paid")),
			conclave.OpDelete("carts/7"),
		)
		fmt.Println(err == nil, errors.Is(err, conclave.ErrCompareFailed))
	}
	// Output:
	// true false
	// false true
}

func ExampleOp() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())
	kv := node.KV()

	steps := []conclave.Op{conclave.OpPut("a", []byte("1"), conclave.WithFlags(42)), conclave.OpDeletePrefix("b/")}
	entries, err := kv.Txn(ctx, steps...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(entries[0].Key, entries[0].Flags, entries[1].Key == "") // one per operation, zero for a deletion
	// Output: a 42 true
}

func ExampleKV_Follow() {
	ctx, stop := context.WithCancel(context.Background())
	node := openOne(ctx)
	defer node.Close(context.Background())
	kv := node.KV()
	if _, err := kv.Put(ctx, "config/port", []byte("8080")); err != nil {
		log.Fatal(err)
	}

	set := func(e conclave.Entry) {
		fmt.Printf("%s = %s\n", e.Key, e.Value)
		if _, err := kv.Txn(ctx, conclave.OpDelete(e.Key), conclave.OpPut("other", nil)); err != nil {
			log.Fatal(err)
		}
	}
	unset := func(key string) {
		fmt.Println(key, "is deleted")
		stop()
	}
	fmt.Println(errors.Is(follow(ctx, kv, "config/", set, unset), context.Canceled))
	// Output:
	// config/port = 8080
	// config/port is deleted
	// true
}

// follow reports the keys with a prefix, and then each change of them.
func follow(ctx context.Context, kv *conclave.KV, prefix string, set func(conclave.Entry), unset func(key string)) error {
	for event, err := range kv.Follow(ctx, prefix) {
		switch {
		case err != nil: // the last element
			return err
		case event.Synced: // set has received all keys
		case event.Deleted:
			unset(event.Entry.Key)
		default:
			set(event.Entry)
		}
	}
	return nil
}

func ExampleKV_PutFenced() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())
	kv, lock := node.KV(), node.FencedLock("invoices")

	former, _ := lock.Lock(ctx)
	_ = lock.Unlock(ctx)
	fence, _ := lock.Lock(ctx)
	_, err := kv.PutFenced(ctx, "invoices/last", []byte("4712"), fence)
	fmt.Println(err)
	_, err = kv.PutFenced(ctx, "invoices/last", []byte("4711"), former) // too late
	fmt.Println(errors.Is(err, conclave.ErrStaleFence))
	// Output:
	// <nil>
	// true
}

func ExampleKV_Acquire() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())
	kv := node.KV()
	session, err := node.NewSession(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}

	held, err := kv.Acquire(ctx, "printers/1", []byte("anna"), session.ID())
	if err != nil {
		log.Fatal(err)
	}
	token := held.Sequencer().String() // sent with each request

	// In the server that receives the request:
	s, err := conclave.ParseSequencer(token)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(node.CheckSequencer(ctx, s))

	if _, err := kv.Release(ctx, "printers/1", nil, session.ID()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(errors.Is(node.CheckSequencer(ctx, s), conclave.ErrStaleSequencer))
	// Output:
	// <nil>
	// true
}

// The check is part of the transaction, so the holder cannot change in between.
func ExampleSequencer() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())
	kv := node.KV()
	session, err := node.NewSession(ctx, &conclave.SessionConfig{Behavior: conclave.DeleteKeys})
	if err != nil {
		log.Fatal(err)
	}
	held, err := kv.Acquire(ctx, "printers/1", nil, session.ID())
	if err != nil {
		log.Fatal(err)
	}
	if err := session.Close(ctx); err != nil { // deletes the key
		log.Fatal(err)
	}

	_, err = kv.Txn(ctx, conclave.OpCheckSequencer(held.Sequencer()), conclave.OpPut("jobs/7", []byte("printed")))
	fmt.Println(errors.Is(err, conclave.ErrStaleSequencer))
	// Output: true
}
