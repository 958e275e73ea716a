package conclavehttp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// endless is a body without an end, of which it counts what is read.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	e.read += len(b)
	return len(b), nil
}

func (e *endless) Close() error { return nil }

// Whatever a client of the console or of the health checks sends, little of it is read: the form of
// an act, and no other body. The parameters of a page have 4 KiB.
func TestHandlers_BoundedByBytes(t *testing.T) {
	const maxForm, slack = 4 << 10, 4 << 10
	n := grouptest.Alone(t)
	console := conclavehttp.Console(n, &conclavehttp.ConsoleOptions{Authorize: func(*http.Request, conclavehttp.Act) (string, error) { return "me", nil }})
	defer console.Close()
	send := func(h http.Handler, method, target string) (status, read int) {
		body := new(endless)
		r := httptest.NewRequest(method, target, body)
		r.RemoteAddr, r.Host, r.ContentLength = "127.0.0.1:5000", "localhost", -1
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, body.read
	}
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE"} {
		for _, path := range []string{"/", "/script.js", "/act", "/none"} {
			bound := 0
			if path == "/act" && method == "POST" {
				bound = maxForm + slack
			}
			status, read := send(console, method, path)
			if read > bound || bound > 0 && (status < 400 || read < maxForm) {
				t.Errorf("%s %s: %d, and %d bytes were read", method, path, status, read)
			}
		}
		for _, path := range []string{"/livez", "/readyz?verbose", "/none"} {
			if status, read := send(conclavehttp.Health(n), method, path); read > 0 {
				t.Errorf("%s %s: %d, and %d bytes were read", method, path, status, read)
			}
		}
	}
	for _, parameter := range []string{"prefix", "after", "lock", "show"} {
		if status, _ := send(console, "GET", "/?"+parameter+"="+strings.Repeat("x", 4<<10+1)); status < 400 {
			t.Errorf("a long %s: %d", parameter, status)
		}
	}
}

// Bodies are read in one place, behind a limit.
func TestHandlers_OneReaderOfBodies(t *testing.T) {
	files, err := filepath.Glob("*.go")
	grouptest.Must(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		grouptest.Must(t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || name == "console_acts.go" && (f.Name.Name == "readAct" || f.Name.Name == "parseAct") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"Body", "ParseForm", "PostForm", "FormValue", "ParseMultipartForm", "MultipartReader"}, s.Sel.Name) {
					t.Errorf("%s: %s reads a body: want readAct, which limits it", name, f.Name.Name)
				}
				return true
			})
		}
	}
}
