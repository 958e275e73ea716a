//go:build !linux

// Command chaos runs a group of real processes under faults. It needs the network
// namespaces of Linux.
package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "chaos: this tool needs Linux, for network namespaces; this is %s\n", runtime.GOOS)
	os.Exit(2)
}
