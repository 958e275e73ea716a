//go:build unix

package examples

import (
	"fmt"
	"syscall"
	"testing"
)

// readNear enters a key until processes have read it from memory, all of them in one round.
func readNear(t *testing.T, key, want string, all ...*process) {
	t.Helper()
	for near := 0; near < len(all); {
		for _, p := range all {
			p.enter(key)
		}
		near = 0
		for _, p := range all {
			if p.expect(key + ` = ` + want + ` from (the group|memory), in `)[0] == "memory" {
				near++
			}
		}
	}
}

// Each process writes in its turn. Once that is printed, the others read what was written, whether they
// had the key in memory or not.
func TestCache_WrittenAndRead(t *testing.T) {
	t.Parallel()
	all := startGroup(t, "cache", nil)
	all[0].enter("=1")
	all[0].expect(`=1: missing key`)
	all[0].enter("bad\x00key")
	all[0].expect(`bad.*invalid`)
	for i := range 9 {
		writer, value := all[i%3], fmt.Sprintf("v%d", i)
		writer.enter("port=" + value)
		writer.expect("port = " + value + " is written")
		for _, p := range all {
			p.enter("port")
		}
		for _, p := range all {
			p.expect("port = " + value + " from ")
		}
		if i%3 == 2 {
			readNear(t, "port", value, all[:]...)
		}
	}
	interrupt(t, all[:]...)
}

// A write waits until the lock of a paused reader has expired. What the reader reads first when it
// continues is not what it has in memory.
func TestCache_ReaderPaused(t *testing.T) {
	t.Parallel()
	all := startGroup(t, "cache", nil, "-ttl", "2s")
	writer, reader := all[0], all[1]
	writer.enter("port=8080")
	writer.expect("port = 8080 is written")
	readNear(t, "port", "8080", reader)

	reader.signal(syscall.SIGSTOP)
	writer.enter("port=8081")
	writer.expect("port = 8081 is written")
	reader.enter("port")
	reader.signal(syscall.SIGCONT)
	reader.expect("port = 8081 from the group")

	readNear(t, "port", "8081", reader)
	reader.kill()
	writer.enter("port=8082")
	writer.expect("port = 8082 is written")
	readNear(t, "port", "8082", all[2])
	interrupt(t, writer, all[2])
}
