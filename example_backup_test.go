package conclave_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/conclave-go/conclave"
)

func ExampleNode_Backup() {
	scratch, err := os.MkdirTemp("", "conclave")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(scratch)
	path, dir := filepath.Join(scratch, "backup"), filepath.Join(scratch, "data")

	ctx := context.Background()
	node, err := conclave.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := node.KV().Put(ctx, "config", []byte("v1")); err != nil {
		log.Fatal(err)
	}
	if err := backUp(ctx, node, path); err != nil {
		log.Fatal(err)
	}
	node.Close(ctx)

	if err := restore(ctx, dir, path); err != nil {
		log.Fatal(err)
	}
	node, err = conclave.Open(ctx, &conclave.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close(ctx)
	entry, err := node.KV().Get(ctx, "config")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", entry.Value)
	// Output: v1
}

// backUp writes a backup to a file, which exists only once it is complete and durable.
func backUp(ctx context.Context, node *conclave.Node, path string) error {
	file, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	defer file.Close()
	if err := node.Backup(ctx, file); err != nil {
		return err // only with ErrUnavailable the file has a backup, which may be old
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

func restore(ctx context.Context, dir, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return conclave.Restore(ctx, dir, file)
}

func ExampleVerify() {
	dir, err := os.MkdirTemp("", "conclave")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	node, err := conclave.Open(ctx, &conclave.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	node.Close(ctx) // of this group of one, no other directory has survived

	info, err := conclave.Verify(dir)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("entries not known to be committed:", info.Uncertain())
	if err := conclave.Recover(ctx, dir); err != nil {
		log.Fatal(err)
	}
	if info, err = conclave.Verify(dir); err != nil {
		log.Fatal(err)
	}
	fmt.Println("seed:", info.Seed, "epoch:", info.Epoch())
	// Output:
	// entries not known to be committed: 0
	// seed: true epoch: 1
}
