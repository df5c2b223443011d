package layers

import (
	"fmt"
	"slices"
	"strings"
)

// Boundary says what a part of the tree may import. Patterns are the go
// command's: "./emu/..." is ours, "net" and "net/..." are the standard
// library's, "github.com/onsi/gomega/..." is someone else's; "std" is all of
// the standard library.
type Boundary struct {
	Name   string
	From   []string
	Except []string // parts of From that the rule is not for
	// Only, if not empty, lists all that may be imported.
	Only []string
	// Never lists what may not be.
	Never []string
	// Through extends the rule to everything that From reaches through our own
	// packages: a helper in between does not make a forbidden import right.
	Through bool
	// Tests extends the rule to _test.go files. Without it tests may compose
	// what the code itself may not know.
	Tests bool
	// Why is the reason that a breach is reported with; Because has a better
	// one for some imports, by pattern.
	Why     string
	Because map[string]string
}

// check returns one finding for each offending import, with the shortest chain
// that leads to it.
func (b Boundary) check(t *Tree) []Finding {
	shortest := map[Import][]string{} // offending import → chain of packages
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

// reach returns start and, for a Through rule, all of our packages that its
// code imports, breadth first, so that each chain is a shortest one.
func (b Boundary) reach(t *Tree, start *Package) []reached {
	all := []reached{{start, []string{start.Path}}}
	if !b.Through {
		return all
	}
	seen := map[string]bool{start.Path: true}
	for i := 0; i < len(all); i++ {
		for _, f := range all[i].pkg.Files {
			for _, imp := range f.Imports {
				// A package that may not be imported at all is reported as
				// such; what is behind it is beside the point.
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
		return true // CgoRule's to judge
	}
	in := func(patterns []string) bool {
		return matchAny(patterns, imp) || slices.Contains(patterns, "std") && t.std[imp]
	}
	return !in(b.Never) && (len(b.Only) == 0 || in(b.Only))
}

// message reads "a imports b, which imports c: reason".
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

// reason picks the most exact of the reasons that fit.
func (b Boundary) reason(imp string) string {
	why, exact := b.Why, ""
	for pattern, because := range b.Because {
		if matchPattern(pattern, imp) && len(pattern) > len(exact) {
			why, exact = because, pattern
		}
	}
	return why
}

// shown is a folder as people write it.
func shown(folder string) string { return strings.TrimPrefix(folder, "./") }
