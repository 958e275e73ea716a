//go:build !unix

package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "postgres: it pauses a process with SIGSTOP, which %s does not have\n", runtime.GOOS)
	os.Exit(1)
}
