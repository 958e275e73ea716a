package process

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/storage"
)

// A directory that another process has open is refused, and that process notices
// nothing. Its holds end with it.
func TestOpen_DirectoryInUseByAnotherProcess(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 1, time.Minute)
	p := g.members[0]
	f := p.must("lock", "x")
	grouptest.WantOpenError(t, conclave.Config{Dir: g.configs[0].Dir}, storage.ErrInUse, g.configs[0].Dir, "one member in one process")
	if now := p.must("fence", "x"); now != f {
		t.Errorf("fence %v has become %v", f, now)
	}
	p.must("unlock", "x")
	p.kill()
	n, err := conclave.Open(grouptest.Bounded(t), &conclave.Config{Dir: g.configs[0].Dir}) // the lock goes with the process
	if err != nil {
		t.Fatal(err)
	}
	grouptest.Kill(n)
}
