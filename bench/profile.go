package main

import (
	"errors"
	"os"
	"runtime/pprof"
	"strconv"
)

// profile writes a CPU profile of each of conclave's turns: file, file.2 and so on. Its
// methods do nothing if it is nil.
type profile struct {
	name string
	n    int
	file *os.File
	err  error
}

func newProfile(name string) (*profile, error) {
	if name == "" {
		return nil, nil
	}
	return &profile{name: name}, nil
}

func (p *profile) start() {
	if p == nil || p.err != nil {
		return
	}
	p.n++
	name := p.name
	if p.n > 1 {
		name += "." + strconv.Itoa(p.n)
	}
	if p.file, p.err = os.Create(name); p.err == nil {
		p.err = pprof.StartCPUProfile(p.file)
	}
}

func (p *profile) stop() {
	if p == nil || p.err != nil {
		return
	}
	pprof.StopCPUProfile()
	p.err = errors.Join(p.err, p.file.Close())
}

func (p *profile) close() error {
	if p == nil {
		return nil
	}
	return p.err
}
