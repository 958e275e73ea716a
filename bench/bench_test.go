package main

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each kind of workload runs on both systems, and gives a figure for each turn.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	o := options{
		workloads: "own-16,shared-16,spread-16,put-64,get-64,watch-100,failover", turns: 1, length: 100 * time.Millisecond, peer: true,
		dir: filepath.Join(dir, "data"), csv: filepath.Join(dir, "figures.csv"), svg: filepath.Join(dir, "chart.svg"),
	}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 8 {
		t.Errorf("%d lines, want a header and 7 rows:\n%s", lines, &out)
	}
	figures, err := csv.NewReader(open(t, o.csv)).ReadAll()
	if err != nil || len(figures) != 1+7*2 {
		t.Errorf("%d lines of figures, %v", len(figures), err)
	}
	for _, f := range figures {
		if f[3] == "0" {
			t.Errorf("no operation: %v", f)
		}
	}
	chart := xml.NewDecoder(open(t, o.svg))
	for {
		if _, err := chart.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRun_WrongFlags(t *testing.T) {
	for name, o := range map[string]options{
		"workload": {workloads: "nap", turns: 1, length: time.Second},
		"turns":    {workloads: "all", turns: 0, length: time.Second},
		"length":   {workloads: "all", turns: 1, length: time.Hour},
	} {
		if err := run(t.Context(), o, io.Discard); err == nil {
			t.Errorf("accepted a wrong %s", name)
		}
	}
}

func TestMiddle(t *testing.T) {
	if got := middle([]float64{3, 1, 2}); got != 2 {
		t.Errorf("got %v", got)
	}
}

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
