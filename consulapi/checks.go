package consulapi

import "sync"

type checkTable struct {
	mu   sync.Mutex
	byID map[string]*agentCheck // guarded by mu
}

type agentCheck struct{}
