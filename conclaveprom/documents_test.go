package conclaveprom

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// METRICS lists each metric with its help text and labels.
func TestDocuments_MetricsListed(t *testing.T) {
	text := document(t, "METRICS.md")
	listed := slices.Concat(ofCalls(), ofLog(), ofGroup())
	for _, d := range ofFurther() {
		d.name = "group_" + d.name
		listed = append(listed, d)
	}
	for _, d := range listed {
		labels := ""
		if len(d.labels) > 0 {
			labels = "`" + strings.Join(d.labels, "`, `") + "`"
		}
		row := regexp.MustCompile(`(?m)^\| ` + "`conclave_" + d.name + "`" + ` \| (counter|gauge|histogram) \| ` +
			regexp.QuoteMeta(labels) + ` \| ` + regexp.QuoteMeta(d.help) + ` \|$`)
		if !row.MatchString(text) {
			t.Errorf("no row for conclave_%s with the labels %q and %q", d.name, labels, d.help)
		}
	}
}

// What the dashboard, the rules and the documents name exists.
func TestDocuments_NameExistingMetrics(t *testing.T) {
	known := describe()
	for name, d := range describeFurther() {
		known["group_"+name] = d
	}
	for _, m := range agentMetrics(t) {
		known[m] = prometheus.NewDesc("conclave_"+m, m, nil, nil)
	}
	for _, name := range []string{"METRICS.md", "grafana/conclave.json", "prometheus/conclave.rules.yml", "prometheus/conclave.test.yml"} {
		for _, metric := range regexp.MustCompile(`\bconclave_([a-z_]+)`).FindAllStringSubmatch(document(t, name), -1) {
			base := metric[1]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if known[base] == nil {
				t.Errorf("%s: there is no metric conclave_%s", name, base)
			}
		}
	}
}

// agentMetrics are those that only an agent has, without the prefix. Its own test compares them with METRICS.
func agentMetrics(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../cmd/conclave/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`Name: "conclave_([a-z_]+)"`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	if len(names) == 0 {
		t.Error("no metric of an agent found")
	}
	return names
}

func TestDocuments_AlertsExplained(t *testing.T) {
	rules, text := document(t, "prometheus/conclave.rules.yml"), document(t, "METRICS.md")
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) == 0 {
		t.Fatal("no alerts")
	}
	for _, a := range alerts {
		if !strings.Contains(text, "\n### "+a[1]+"\n") {
			t.Errorf("METRICS does not explain %s", a[1])
		}
		if !strings.Contains(rules, "runbook: docs/METRICS.md#"+strings.ToLower(a[1])+"\n") {
			t.Errorf("%s has no runbook", a[1])
		}
		if n := strings.Count(document(t, "prometheus/conclave.test.yml"), "alertname: "+a[1]); n != 2 {
			t.Errorf("%s has %d tests, want one in which it comes and one in which it does not", a[1], n)
		}
	}
}

type panel struct {
	Title   string
	Targets []struct{ Expr string }
	Row     string // "": the panel is in none
}

func panels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			panel
			Type   string
			Panels []panel // of a row
		}
	}
	if err := json.Unmarshal([]byte(document(t, "grafana/conclave.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	var all []panel
	for _, p := range dashboard.Panels {
		if p.Type != "row" {
			all = append(all, p.panel)
		}
		for _, of := range p.Panels {
			of.Row = p.Title
			all = append(all, of)
		}
	}
	return all
}

func TestDocuments_DashboardIsComplete(t *testing.T) {
	all := panels(t)
	for _, p := range all {
		if p.Title == "" || len(p.Targets) == 0 || p.Targets[0].Expr == "" {
			t.Errorf("panel %q shows nothing", p.Title)
		}
	}
	if len(all) == 0 {
		t.Error("no panels")
	}
}

// A panel about further groups shows the chosen ones, and is in their row. All others are about the default group.
func TestDocuments_DashboardOfFurtherGroups(t *testing.T) {
	rows := 0
	for _, p := range panels(t) {
		if p.Row != "" {
			rows++
		}
		for _, target := range p.Targets {
			metrics := strings.Count(target.Expr, "conclave_")
			further := strings.Count(target.Expr, "conclave_group_") - strings.Count(target.Expr, "conclave_group_time_seconds")
			if p.Row == "" && further != 0 || p.Row != "" && (further != metrics || strings.Count(target.Expr, `group=~"$group"`) != metrics) {
				t.Errorf("panel %q in row %q: %s", p.Title, p.Row, target.Expr)
			}
		}
	}
	if rows == 0 {
		t.Error("no panels of further groups")
	}
}

// Prometheus itself accepts the rules, their tests, and the dashboard's expressions.
func TestDocuments_Promtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: apt-get install prometheus")
	}
	expressions := "groups:\n- name: dashboard\n  rules:\n"
	for i, p := range panels(t) {
		for j, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", "job", "$group", ".*", "'", "''").Replace(target.Expr)
			expressions += fmt.Sprintf("  - record: panel_%d_%d\n    expr: '%s'\n", i, j, expr)
		}
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, []byte(expressions), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", "rules", "../docs/prometheus/conclave.rules.yml"},
		{"test", "rules", "../docs/prometheus/conclave.test.yml"},
		{"check", "rules", file},
		{"check", "config", "../docs/prometheus/prometheus.yml"},
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
