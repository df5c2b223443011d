package main

import (
	"fmt"
	"slices"
	"strings"
)

// Boundary restricts the imports of some packages. Patterns are those of the go command:
// "./emu/..." is in this module, "net/..." in the standard library, "std" is the whole
// standard library, and "github.com/onsi/gomega/..." is a dependency.
type Boundary struct {
	Name   string
	From   []string
	Except []string // packages of From that are exempt
	// Only, if not empty, lists all allowed imports.
	Only []string
	// Never lists forbidden imports.
	Never []string
	// Through extends the rule to indirect imports through packages of this module.
	Through bool
	// Tests extends the rule to _test.go files.
	Tests bool
	// Why is the reason in reports; Because has more specific reasons by import
	// pattern.
	Why     string
	Because map[string]string
}

// check returns a finding for each forbidden import, with the shortest import chain.
func (b Boundary) check(t *Tree) []Finding {
	shortest := map[Import][]string{} // forbidden import → chain of packages
	for _, start := range t.match(b.From, b.Except) {
		for _, r := range b.reach(t, start) {
			for _, f := range r.pkg.Files {
				if f.Test && (!b.Tests || r.pkg != start) {
					continue
				}
				for _, imp := range f.Imports {
					if old, ok := shortest[imp]; !b.allows(t, imp.Path) && (!ok || len(r.chain) < len(old)) {
						shortest[imp] = r.chain
					}
				}
			}
		}
	}
	found := make([]Finding, 0, len(shortest))
	for imp, chain := range shortest {
		found = append(found, Finding{Pos: imp.Pos, Msg: b.message(chain, imp.Path)})
	}
	return found
}

type reached struct {
	pkg   *Package
	chain []string // from the start to pkg
}

// reach returns start and, if Through is set, the packages of this module that it
// imports directly or indirectly, breadth first.
func (b Boundary) reach(t *Tree, start *Package) []reached {
	all := []reached{{start, []string{start.Path}}}
	if !b.Through {
		return all
	}
	seen := map[string]bool{start.Path: true}
	for i := 0; i < len(all); i++ {
		for _, f := range all[i].pkg.Files {
			for _, imp := range f.Imports {
				// Do not follow forbidden imports: check reports them.
				if f.Test || seen[imp.Path] || !isOurs(imp.Path) || !b.allows(t, imp.Path) {
					continue
				}
				seen[imp.Path] = true
				if p := t.lookup(imp.Path); p != nil {
					all = append(all, reached{p, append(slices.Clone(all[i].chain), p.Path)})
				}
			}
		}
	}
	return all
}

func (b Boundary) allows(t *Tree, imp string) bool {
	if imp == "C" {
		return true // see CgoRule
	}
	in := func(patterns []string) bool {
		return matchAny(patterns, imp) || slices.Contains(patterns, "std") && t.std[imp]
	}
	return !in(b.Never) && (len(b.Only) == 0 || in(b.Only))
}

// message returns "a imports b, which imports c: reason".
func (b Boundary) message(chain []string, imp string) string {
	var m strings.Builder
	m.WriteString(shown(chain[0]))
	for i, next := range append(chain[1:len(chain):len(chain)], imp) {
		if i > 0 {
			m.WriteString(", which")
		}
		m.WriteString(" imports " + shown(next))
	}
	fmt.Fprintf(&m, ": %s (rule %q)", b.reason(imp), b.Name)
	return m.String()
}

// reason returns the reason of the longest matching pattern.
func (b Boundary) reason(imp string) string {
	why, longest := b.Why, ""
	for pattern, because := range b.Because {
		if matchPattern(pattern, imp) && len(pattern) > len(longest) {
			why, longest = because, pattern
		}
	}
	return why
}

// shown returns a package path without "./".
func shown(folder string) string { return strings.TrimPrefix(folder, "./") }
