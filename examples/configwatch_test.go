//go:build unix

package examples

import (
	"testing"
)

// What one process writes all see, in one order. The writer is killed with -9;
// another one goes on.
func TestConfigWatch(t *testing.T) {
	t.Parallel()
	all := trio(t, "configwatch", nil)
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
				t.Errorf("%s has index %s where anna has %s", p.name, index, indexes[i])
			}
		}
	}

	anna.kill()
	ben, clara := all[1], all[2]
	ben.enter("port=8082")
	for _, p := range []*process{ben, clara} {
		p.expect(`config/port = 8082`)
	}
	leave(t, ben, clara)
}

// Who starts reads what is. It is alone, so its restart is quick to arrange.
func TestConfigWatchRestarted(t *testing.T) {
	t.Parallel()
	args := []string{"-dir", t.TempDir(), "-name", "anna"}
	p := start(t, "anna", nil, "configwatch", args...)
	p.expect(`is in the group`)
	p.enter("port=8080")
	p.expect(`config/port = 8080`)
	p.enter("bad\x00key=1")
	p.expect(`bad.*invalid`)
	p.kill()

	p = start(t, "anna", nil, "configwatch", args...)
	p.expect(`config/port = 8080`)
	p.expect(`up to date: 1 keys`)
	leave(t, p)
}
