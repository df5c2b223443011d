package main

import (
	"fmt"
	"go/token"
)

// CgoRule restricts cgo to some packages, and there to files with a build tag, so that a
// build without tags needs no C compiler.
type CgoRule struct {
	In  []string
	Why string
}

func (r CgoRule) check(t *Tree) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		for _, f := range p.Files {
			pos, ok := importOfC(f)
			switch {
			case !ok:
			case !matchAny(r.In, p.Path):
				found = append(found, Finding{pos, fmt.Sprintf("%s uses cgo: %s", shown(p.Path), r.Why)})
			case inPlainBuild(f):
				found = append(found, Finding{pos, fmt.Sprintf("%s uses cgo in a file that a plain build includes: put it behind a build tag; %s", shown(p.Path), r.Why)})
			}
		}
	}
	return found
}

func importOfC(f *File) (token.Position, bool) {
	for _, imp := range f.Imports {
		if imp.Path == "C" {
			return imp.Pos, true
		}
	}
	return token.Position{}, false
}

// plainTags are build tags that the go command sets by default on some systems. Other
// tags need -tags.
var plainTags = map[string]bool{
	"cgo": true, "gc": true, "unix": true,
	"linux": true, "darwin": true, "windows": true, "freebsd": true,
	"amd64": true, "arm64": true,
}

// inPlainBuild reports whether a build without -tags may include the file.
func inPlainBuild(f *File) bool {
	return f.Constraint == nil || f.Constraint.Eval(func(tag string) bool { return plainTags[tag] })
}
