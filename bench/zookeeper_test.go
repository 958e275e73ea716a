package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each kind of workload runs beside ZooKeeper where it is installed, and the results name it.
func TestRun_BesideZooKeeper(t *testing.T) {
	if _, err := findZooKeeper(); err != nil {
		t.Skip(err)
	}
	t.Parallel() // most of the time it waits for JVMs to start
	dir := t.TempDir()
	o := options{
		workloads: "shared-16,semaphore-64,rw-64,set-64,put-64,get-64,watch-100,failover", turns: 1, length: 100 * time.Millisecond, peer: "zookeeper",
		dir: filepath.Join(dir, "data"), csv: filepath.Join(dir, "figures.csv"), svg: filepath.Join(dir, "chart.svg"),
	}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 9 || !strings.Contains(out.String(), "zookeeper/s") {
		t.Errorf("%d lines, want a header and 8 rows:\n%s", lines, &out)
	}
	wantFigures(t, o.csv, 8*2-3) // ZooKeeper has no semaphore, no lock with two modes, and is not asked for several
	wantXML(t, o.svg)
	for _, name := range []string{o.csv, o.svg} {
		if text, err := io.ReadAll(open(t, name)); err != nil || !strings.Contains(string(text), "zookeeper") {
			t.Errorf("%s does not name the peer: %v", filepath.Base(name), err)
		}
	}
}
