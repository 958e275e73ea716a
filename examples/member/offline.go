package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/conclave-go/conclave"
)

// offline works on a directory on which no member runs, and prints what it is
// afterwards.
func offline(ctx context.Context, name string, f *commandFlags, w io.Writer) error {
	var err error
	switch name {
	case "restore":
		err = restore(ctx, f.dir, f.file)
	case "recover":
		err = conclave.Recover(ctx, f.dir)
	}
	if err != nil {
		return err
	}
	info, err := conclave.Verify(f.dir)
	if err == nil {
		fmt.Fprint(w, info)
	}
	return err
}

func restore(ctx context.Context, dir, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return conclave.Restore(ctx, dir, file)
}
