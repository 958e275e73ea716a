//go:build unix

package examples

import (
	"testing"
)

// All processes print the same changes in the same order, and go on after the
// writer is killed.
func TestConfigWatch_WriterKilled(t *testing.T) {
	t.Parallel()
	all := startGroup(t, "configwatch", nil)
	for _, p := range all {
		p.expect(`up to date: 0 keys`)
	}
	anna := all[0]
	for _, line := range []string{"port=8080", "host=a", "port=8081", "host"} {
		anna.enter(line)
	}
	var indexes [4]string
	for _, p := range all {
		for i, pattern := range []string{
			`config/port = 8080 \(index (\d+)\)`, `config/host = a \(index (\d+)\)`,
			`config/port = 8081 \(index (\d+)\)`, `config/host is deleted \(index (\d+)\)`,
		} {
			index := p.expect(pattern)[0]
			if p == anna {
				indexes[i] = index
			}
			if index != indexes[i] {
				t.Errorf("%s prints index %s, want %s as anna", p.name, index, indexes[i])
			}
		}
	}

	anna.kill()
	ben, clara := all[1], all[2]
	ben.enter("port=8082")
	for _, p := range []*process{ben, clara} {
		p.expect(`config/port = 8082`)
	}
	interrupt(t, ben, clara)
}

// A killed process lists the keys when it restarts. It is a group of one, so the
// restart needs no others.
func TestConfigWatch_Restarted(t *testing.T) {
	t.Parallel()
	args := []string{"-dir", t.TempDir(), "-name", "anna"}
	p := start(t, "anna", nil, "configwatch", args...)
	p.expectKillCommand()
	p.enter("port=8080")
	p.expect(`config/port = 8080`)
	p.enter("bad\x00key=1")
	p.expect(`bad.*invalid`)
	p.enter("=1")
	p.expect(`=1: missing key`)
	p.enter(" = ")
	p.expect(`=: missing key`)
	p.kill()

	p = start(t, "anna", nil, "configwatch", args...)
	p.expect(`config/port = 8080`)
	p.expect(`up to date: 1 keys`)
	interrupt(t, p)
}
