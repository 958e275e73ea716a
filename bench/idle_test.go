package main

import (
	"bytes"
	"encoding/csv"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Members that no caller uses send heartbeats, have goroutines and use memory. It runs before
// the parallel tests, which would count as well.
func TestRun_Idle(t *testing.T) {
	dir := t.TempDir()
	o := options{idle: time.Second, turns: 1, length: time.Second, dir: dir, csv: filepath.Join(dir, "idle.csv")}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	costs, err := csv.NewReader(open(t, o.csv)).ReadAll()
	if err != nil || len(costs) != 1+10 || strings.Count(out.String(), "\n") != len(costs) {
		t.Fatalf("want 10 costs: %v\n%s", err, &out)
	}
	for _, c := range costs[1:] {
		switch c[0] {
		case "cpu", "network", "network writes", "goroutines", "heap":
			if value, err := strconv.ParseFloat(c[1], 64); err != nil || value <= 0 {
				t.Errorf("%v: want more than 0, %v", c, err)
			}
		}
	}
}

func TestCost_Unknown(t *testing.T) {
	for _, c := range (usage{}).until(usage{at: time.Time{}.Add(time.Second)}) {
		if fields := strings.Fields(c.String()); c.name == "disk" && fields[1] != "-" {
			t.Errorf("disk: want -, got %v", c)
		}
	}
}

func TestRun_ConflictingFlags(t *testing.T) {
	for name, o := range map[string]options{
		"growth and idle":          {idle: time.Second, growth: "all"},
		"idle and svg":             {idle: time.Second, svg: "chart.svg"},
		"idle, held, no groups":    {idle: time.Second, held: true},
		"idle and memory":          {idle: time.Second, memory: true},
		"growth, cpu time":         {growth: "all", profile: "cpu"},
		"path and idle":            {path: time.Second, idle: time.Second},
		"path and growth":          {path: time.Second, growth: "all"},
		"path and ceiling":         {path: time.Second, ceiling: true},
		"path and csv":             {path: time.Second, csv: "figures.csv"},
		"path, too long":           {path: time.Hour},
		"scale, too long":          {scale: time.Minute},
		"scale, negative":          {scale: -time.Second},
		"scale and path":           {scale: time.Second, path: time.Second},
		"scale and ceiling":        {scale: time.Second, ceiling: true},
		"scale and figures":        {scale: time.Second, csv: "figures.csv"},
		"footprint, no agent":      {footprint: time.Second, rate: 1000},
		"footprint, no rate":       {footprint: time.Second, agent: "conclave"},
		"footprint, idle":          {footprint: time.Second, agent: "conclave", rate: 1000, idle: time.Second},
		"footprint and figures":    {footprint: time.Second, agent: "conclave", rate: 1000, csv: "figures.csv"},
		"footprint with a ceiling": {footprint: time.Second, agent: "conclave", rate: 1000, ceiling: true},
	} {
		o.turns, o.length, o.growthMax = 1, time.Second, 100_000
		if err := run(t.Context(), o, new(bytes.Buffer)); err == nil {
			t.Errorf("accepted %s", name)
		}
	}
}
