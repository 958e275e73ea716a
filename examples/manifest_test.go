package examples

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// manifest is a Kubernetes manifest, or a part of one: its scalars by their path, such as
// spec.ports.0.port.
type manifest map[string]string

func (m manifest) text(path string) string { return m[path] }

// list returns the parts below a path, in order; a scalar is below "".
func (m manifest) list(path string) (parts []manifest) {
	for i := 0; ; i++ {
		prefix, part := path+"."+strconv.Itoa(i), manifest{}
		for at, text := range m {
			if below, ok := strings.CutPrefix(at, prefix); ok && (below == "" || below[0] == '.') {
				part[strings.TrimPrefix(below, ".")] = text
			}
		}
		if len(part) == 0 {
			return parts
		}
		parts = append(parts, part)
	}
}

// parser parses the part of YAML that the manifests keep to: mappings and lists in block
// style, two spaces for each level, lists deeper than their key, plain scalars on one
// line, and comments. It fails the test on everything else, and on a key that stands twice.
type parser struct {
	t    *testing.T
	at   string // the line, for messages
	all  manifest
	open string  // the path of a key without a value, which the next line must be below
	in   []level // from the outside
}

// level is a mapping or a list that is being read.
type level struct {
	indent int
	path   string
	items  int  // of a list so far
	list   bool // its lines begin with "- "
}

func parseManifest(t *testing.T, name, text string) manifest {
	t.Helper()
	p := &parser{t: t, all: manifest{}, in: []level{{}}}
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, " #")
		content := strings.TrimLeft(line, " ")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(content, "#") {
			continue
		}
		p.at = fmt.Sprintf("%s: line %d of a manifest: %q", name, n+1, line)
		if strings.ContainsAny(line, "\t\"'{}[]&*!|>%@`") || strings.HasSuffix(line, " ") {
			t.Fatalf("%s: not in the part of YAML that the manifests keep to", p.at)
		}
		p.enter(len(line)-len(content), strings.HasPrefix(content, "- "))
		p.read(content)
	}
	if p.open != "" {
		t.Fatalf("%s: %s has no value", name, p.open)
	}
	return p.all
}

// enter finds the level of a line by its indentation.
func (p *parser) enter(indent int, list bool) {
	p.t.Helper()
	if p.open != "" {
		if indent != p.in[len(p.in)-1].indent+2 {
			p.t.Fatalf("%s: want two spaces more, below %s", p.at, p.open)
		}
		p.in = append(p.in, level{indent: indent, path: p.open + ".", list: list})
		p.open = ""
	}
	for indent < p.in[len(p.in)-1].indent {
		p.in = p.in[:len(p.in)-1]
	}
	if top := p.in[len(p.in)-1]; indent != top.indent || list != top.list {
		p.t.Fatalf("%s: it fits neither the lines above nor a key", p.at)
	}
}

// read reads an item of a list, or a key with its value.
func (p *parser) read(content string) {
	p.t.Helper()
	top := &p.in[len(p.in)-1]
	path := top.path
	if item, ok := strings.CutPrefix(content, "- "); ok {
		path += strconv.Itoa(top.items)
		top.items++
		if !strings.Contains(item, ": ") && !strings.HasSuffix(item, ":") {
			p.all[path] = item
			return
		}
		path += "."
		p.in = append(p.in, level{indent: top.indent + 2, path: path})
		content = item
	}
	key, value, ok := strings.Cut(content, ":")
	if !ok || key == "" || strings.Contains(key, " ") || value != "" && value[0] != ' ' {
		p.t.Fatalf("%s: want key: value", p.at)
	}
	path += key
	if _, twice := p.all[path]; twice {
		p.t.Fatalf("%s: the key stands twice", p.at)
	}
	if p.all[path] = strings.TrimSpace(value); p.all[path] == "" {
		p.open = path
	}
}
