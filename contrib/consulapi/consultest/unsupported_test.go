package consultest

import (
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// unsupported is a row of the table in docs/CONSUL.md.
type unsupported struct {
	method, path, body string
	status             int
	message            string
}

// refusals reads the table of what is refused.
func refusals(t *testing.T) []unsupported {
	t.Helper()
	text, err := os.ReadFile("../../../docs/CONSUL.md")
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## What is refused\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var all []unsupported
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| \n"), " |")
		if len(cells) != 4 {
			t.Fatalf("docs/CONSUL.md: %d cells: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		method, path, _ := strings.Cut(cells[0], " ")
		status, err := strconv.Atoi(cells[2])
		must(t, err)
		all = append(all, unsupported{method, path, cells[1], status, cells[3]})
	}
	return all
}

// Each request in the table of the document is refused as it says, and changes nothing.
func TestUnsupported_Refused(t *testing.T) {
	a := start(t, 1)
	rows := refusals(t)
	if len(rows) < 30 {
		t.Errorf("%d rows in the table", len(rows))
	}
	for _, row := range rows {
		t.Run(row.method+" "+row.path+" "+row.body, func(t *testing.T) {
			req, err := http.NewRequestWithContext(bounded(t), row.method, a.servers[0].URL+row.path, strings.NewReader(row.body))
			must(t, err)
			resp, err := http.DefaultClient.Do(req)
			must(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			must(t, err)
			if resp.StatusCode != row.status || !strings.Contains(string(body), row.message) {
				t.Errorf("status %d, message %q, want %d and %q", resp.StatusCode, body, row.status, row.message)
			}
		})
	}
	if pairs, _, err := a.client(0).KV().List("", nil); err != nil || len(pairs) != 0 {
		t.Errorf("refused requests left %+v, %v", pairs, err)
	}
	if sessions, _, err := a.client(0).Session().List(nil); err != nil || len(sessions) != 0 {
		t.Errorf("refused requests left %+v, %v", sessions, err)
	}
	if checks, err := a.client(0).Agent().Checks(); err != nil || len(checks) != 0 {
		t.Errorf("refused requests left %+v, %v", checks, err)
	}
}
