package main

import (
	"os"
	"testing"
)

// The tests of -scale start this program again, for its members.
func TestMain(m *testing.M) {
	if os.Getenv(memberVariable) != "" {
		exit(serveMember(os.Stdin, os.Stdout))
		return
	}
	os.Exit(m.Run())
}
