package transport

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// What arrives is decoded by wire.Decode alone, which asks for the bounds of each field first.
func TestTransport_DecodesWithinBounds(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	decoded := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				switch s.Sel.Name {
				case "Decode":
					decoded++
				case "Unmarshal", "UnmarshalOptions":
					t.Errorf("%s decodes by %s: want wire.Decode", name, s.Sel.Name)
				}
			}
			return true
		})
	}
	if decoded < 7 {
		t.Errorf("%d messages are decoded", decoded)
	}
}

// A hello with a list beyond its bound is refused before it is decoded.
func TestReadHello_BeyondBounds(t *testing.T) {
	body, err := proto.Marshal(&wire.Hello{Endorsements: make([]*wire.Endorsement, 1025)})
	if err != nil || len(body) > maxHello {
		t.Fatal(len(body), err)
	}
	_, err = readHello(strings.NewReader(string(appendFrame([]byte(magic), body))))
	if !errors.Is(err, wire.ErrBound) || !errors.Is(err, ErrBadFrame) {
		t.Error(err)
	}
}
