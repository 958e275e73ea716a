package hostile

import (
	"fmt"
	"testing"
)

// Attempt prints what was attempted and what came of it, under a number: A1 removal by
// refusals, A2 impersonation, A3 certificates, A4 the incarnation of another member, A5
// deaths in gossip, 15 places and memory for connections, 16 forming.
func Attempt(t testing.TB, number, what, result string, args ...any) {
	t.Helper()
	t.Logf("%-3s attempt: %s\n    result:  %s", number, what, fmt.Sprintf(result, args...))
}
