package main

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// findKillers prints a test that kills each bug, and with update writes it into
// the patch. It reports whether there is one for all.
func (t *tree) findKillers(ctx context.Context, g *ground, bugs []bug, update bool) (bool, error) {
	all := true
	for _, b := range bugs {
		p, ok := t.table.found[b.name]
		err := t.table.faults[b.name]
		if ok {
			p.test, err = g.find(ctx, p)
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil {
			fmt.Printf("%s: %v\n", b.name, err)
			all = false
			continue
		}
		fmt.Printf("%s: killed by %s\n", b.name, p.test)
		if update {
			if err := t.write(p.bug); err != nil {
				return false, err
			}
		}
	}
	return all, nil
}

// find looks for a test that fails because of the bug: the tests of the package
// that has it, then those of the packages that import that one, in short mode
// before the rest.
func (g *ground) find(ctx context.Context, p planted) (test, error) {
	overlay, err := g.lay(p)
	if err != nil {
		return test{}, err
	}
	packages, err := g.dependents("./" + path.Dir(p.file))
	if err != nil {
		return test{}, err
	}
	for _, flags := range [][]string{{"-short"}, nil} {
		for _, pkg := range packages {
			fmt.Printf("%-28s %s %s\n", p.name, pkg, strings.Join(flags, ""))
			killer, err := g.killer(ctx, pkg, overlay, flags)
			if killer.run != "" || err != nil {
				return killer, err
			}
		}
	}
	return test{}, fmt.Errorf("SURVIVED the tests of %s", strings.Join(packages, " "))
}

// killer runs the tests of a package until one fails with the bug and passes
// without it. A test that fails either way is left out of the next run.
func (g *ground) killer(ctx context.Context, pkg, overlay string, flags []string) (test, error) {
	for range 3 {
		out, err := g.run(ctx, test{pkg: pkg}, "", overlay, flags...)
		if ctx.Err() != nil {
			return test{}, ctx.Err()
		}
		verdict, line := judge(out, err)
		if verdict == broken && line != "there is no such test" {
			return test{}, fmt.Errorf("%s: %s", pkg, line)
		}
		if verdict != killed {
			return test{}, nil
		}
		name := failed(out)
		if name == "" {
			return test{}, fmt.Errorf("%s: no test is named by the failure: %s", pkg, line)
		}
		found := test{pkg: pkg, run: regexp.QuoteMeta(name)}
		if _, err := g.run(ctx, found, found.pattern(), ""); err == nil {
			return found, nil
		}
		fmt.Printf("    %s fails without the bug too\n", found)
		flags = append(slices.Clone(flags), "-skip", found.pattern())
	}
	return test{}, nil
}

var (
	failure  = regexp.MustCompile(`(?m)^--- FAIL: (\S+) \(`)
	deeper   = regexp.MustCompile(`(?m)^    --- FAIL: (\S+) \(`)
	timedOut = regexp.MustCompile(`running tests:\n\s+(\S+) \(`)
)

// failed returns the test that the output of go test names first as failed,
// with its first subtest that failed.
func failed(out string) string {
	for _, form := range []*regexp.Regexp{deeper, failure, timedOut} {
		if found := form.FindStringSubmatch(out); found != nil {
			return found[1]
		}
	}
	return ""
}

// dependents returns a package of the library and the packages that import it,
// directly or not, or whose tests do; the fewest imports first.
func (g *ground) dependents(pkg string) ([]string, error) {
	pkg = strings.TrimSuffix(pkg, "/.")
	format := `{{if .Module}}{{.ForTest}}	{{.ImportPath}}	{{.Module.Path}}	{{join .Deps " "}}{{end}}`
	out, err := goList(g.root, "-test", "-f", format, "./...")
	if err != nil {
		return nil, err
	}
	imports := make(map[string][]string)
	var module string
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) < 4 {
			continue
		}
		module = fields[2]
		name, _, _ := strings.Cut(fields[1], " ")
		name = strings.TrimSuffix(strings.TrimSuffix(name, ".test"), "_test")
		for dep := range strings.FieldsSeq(fields[3]) {
			imports[name] = append(imports[name], dep)
		}
	}
	target := path.Join(module, pkg)
	var found []string
	for name, deps := range imports {
		if name != target && slices.Contains(deps, target) {
			found = append(found, name)
		}
	}
	slices.SortFunc(found, func(a, b string) int { return len(imports[a]) - len(imports[b]) })
	relative := []string{pkg}
	for _, name := range found {
		relative = append(relative, "."+strings.TrimPrefix(name, module))
	}
	return relative, nil
}
