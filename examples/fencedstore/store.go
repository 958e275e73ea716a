//go:build unix

package main

import (
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/conclave-go/conclave"
)

// fenceHeader carries the writer's fence, as a decimal number.
const fenceHeader = "X-Fence"

// store keeps a value for each name. PUT /name writes it.
type store struct {
	mu      sync.Mutex // makes check and write one step
	guard   conclave.Guard
	values  map[string]string // guarded by mu
	refused int               // guarded by mu
}

func newStore() *store { return &store{values: make(map[string]string)} }

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if r.Method != http.MethodPut || err != nil {
		http.Error(w, "want a PUT of at most 1 MiB", http.StatusBadRequest)
		return
	}
	fence, err := strconv.ParseUint(r.Header.Get(fenceHeader), 10, 64)
	if err != nil {
		http.Error(w, "missing or invalid "+fenceHeader, http.StatusPreconditionRequired)
		return
	}
	if err := s.put(r.URL.Path[1:], conclave.Fence(fence), string(value)); err != nil {
		http.Error(w, err.Error(), http.StatusPreconditionFailed)
	}
}

// put writes for a holder of the lock of that name, or returns ErrStaleFence if a
// later holder has written before.
func (s *store) put(name string, f conclave.Fence, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.guard.Check(name, f); err != nil {
		s.refused++
		return err
	}
	s.values[name] = value
	return nil
}

// get returns a value and how many writes were refused so far.
func (s *store) get(name string) (value string, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[name], s.refused
}
