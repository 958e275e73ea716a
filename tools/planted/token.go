package main

import (
	"go/scanner"
	"go/token"
	"slices"
	"strings"
)

// lexeme is one token of Go source. Semicolons that a line end implies and
// commas before a closing bracket are layout and have no lexeme.
type lexeme struct {
	kind       kind
	text       string
	selected   bool // follows a dot: a field, a method, a name of a package
	start, end int  // in the source
}

type kind int

const (
	punctuation kind = iota
	keyword          // and names that have one meaning only: predeclared, standard library
	name
	text // a string literal
	literal
)

// weight is what a lexeme contributes to a comparison: names distinguish code,
// brackets and dots hardly do.
func (k kind) weight() float64 {
	return [...]float64{punctuation: 0.3, keyword: 0.7, name: 1, text: 1, literal: 0.7}[k]
}

// fixed are the names that no rename in this repository changes; the last line,
// names of other modules that only a bug uses.
var fixed = strings.Fields(`
	any append bool byte cap clear close comparable complex copy delete error false float64 int int32 int64 iota
	len make max min new nil panic print println recover string true uint uint32 uint64 uint8 _
	binary bytes cmp context crypto errors fmt heap io json log maps math net os rand raft raftpb slices slog
	sort strings sync time
	SuspicionMult`)

var packages = strings.Fields(`
	binary bytes cmp context errors fmt heap io json maps math net os rand raft raftpb slices slog sort strings sync time`)

// lex returns the lexemes of a piece of Go, which need not be a whole file.
func lex(source string) []lexeme {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, []byte(source), func(token.Position, string) {}, 0)
	var found []lexeme
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return found
		}
		if tok == token.SEMICOLON && lit != ";" {
			continue
		}
		l := lexeme{kind: punctuation, text: tok.String(), start: file.Offset(pos)}
		if tok.IsLiteral() || tok.IsKeyword() {
			l.text = lit
		}
		l.end = l.start + len(l.text)
		closing := tok == token.RPAREN || tok == token.RBRACK || tok == token.RBRACE
		if n := len(found); closing && n > 0 && found[n-1].text == "," {
			found = found[:n-1]
		}
		l.classify(tok, found)
		found = append(found, l)
	}
}

func (l *lexeme) classify(tok token.Token, before []lexeme) {
	n := len(before)
	l.selected = n > 0 && before[n-1].text == "."
	switch {
	case tok == token.STRING:
		l.kind = text
	case tok == token.IDENT:
		l.kind = name
		library := l.selected && n > 1 && !before[n-2].selected && slices.Contains(packages, before[n-2].text)
		if library || !l.selected && slices.Contains(fixed, l.text) {
			l.kind = keyword
		}
	case tok.IsLiteral():
		l.kind = literal
	case tok.IsKeyword():
		l.kind = keyword
	}
}

// key distinguishes the name of a field or method from that of a variable or type.
func (l lexeme) key() string {
	if l.selected {
		return "." + l.text
	}
	return l.text
}

// likeness is how well b can stand for a: 1 for the same lexeme, less for
// another name or message, 0 where they cannot correspond.
func likeness(a, b lexeme) float64 {
	switch {
	case a.kind == b.kind && a.text == b.text:
		return 1
	case a.kind == name && b.kind == name && a.selected == b.selected:
		return 0.5
	case a.kind == text && b.kind == text:
		return 0.5
	}
	return 0
}

// withoutComments blanks the comments of a piece of Go; offsets stay.
func withoutComments(source string) string {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, []byte(source), func(token.Position, string) {}, scanner.ScanComments)
	blank := []byte(source)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return string(blank)
		}
		if tok != token.COMMENT {
			continue
		}
		for i := file.Offset(pos); i < file.Offset(pos)+len(lit); i++ {
			if blank[i] != '\n' {
				blank[i] = ' '
			}
		}
	}
}
