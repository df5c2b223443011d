package mutant

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// source is a parsed Go file.
type source struct {
	name string
	text string
	file *ast.File
	fset *token.FileSet
}

// parse parses the text of a Go file, with comments.
func parse(name, text string) (*source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{name, text, f, fset}, nil
}

func (s *source) offset(p token.Pos) int        { return s.fset.Position(p).Offset }
func (s *source) between(a, b token.Pos) string { return s.text[s.offset(a):s.offset(b)] }
func (s *source) nodeText(n ast.Node) string    { return s.between(n.Pos(), n.End()) }

// decls returns the top-level declarations of the file by name; a method's name is Type.method.
// Variables or constants that are declared together (var a, b int) share a node.
func (s *source) decls() map[string]ast.Node {
	all := map[string]ast.Node{}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			all[funcName(d)] = d
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					all[spec.Name.Name] = spec
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						all[id.Name] = spec
					}
				}
			}
		}
	}
	return all
}

// funcName returns the name of a function, or Type.method, without pointers and type parameters.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	return t.(*ast.Ident).Name + "." + d.Name.Name
}

// apply returns the text of the file with the hunks of a mutant applied, within the declaration
// Decl of a hunk if it has one. It appends the new text of hunks without old text to the file, and
// added imports to the line of the package clause.
func (s *source) apply(hunks []Hunk) (string, error) {
	lines := strings.Split(s.text, "\n")
	var added []string
	imports := ""
	type change struct { // replaces lines
		from, to int
		with     []string
	}
	var changes []change
	for _, h := range hunks {
		for _, spec := range h.Imports {
			imports += "; import " + spec
		}
		if len(h.Old) == 0 {
			added = append(added, "", strings.Join(h.New, "\n"))
			continue
		}
		from, to := 0, len(lines)
		if h.Decl != "" {
			d := s.decls()[h.Decl]
			if d == nil {
				return "", fmt.Errorf("%s: no declaration %s", s.name, h.Decl)
			}
			from, to = s.fset.Position(d.Pos()).Line-1, s.fset.Position(d.End()).Line
		}
		at, err := find(lines[from:to], h.Old)
		if err != nil {
			return "", fmt.Errorf("%s: %w", s.name, err)
		}
		changes = append(changes, change{from + at, from + at + len(h.Old), h.New})
	}
	// From the end of the file to its beginning, so that line numbers stay valid.
	slices.SortFunc(changes, func(a, b change) int { return b.from - a.from })
	for _, c := range changes {
		lines = slices.Replace(lines, c.from, c.to, c.with...)
	}
	lines[s.fset.Position(s.file.Name.Pos()).Line-1] += imports
	return strings.Join(append(lines, added...), "\n"), nil
}

// equalTrimmed reports whether two lines are equal but for white space at both ends.
func equalTrimmed(a, b string) bool { return strings.TrimSpace(a) == strings.TrimSpace(b) }

// find returns the index in lines of the only occurrence of the lines want. It ignores white
// space at both ends of a line.
func find(lines, want []string) (int, error) {
	found := -1
	for i := range len(lines) - len(want) + 1 {
		switch same := slices.EqualFunc(lines[i:i+len(want)], want, equalTrimmed); {
		case same && found >= 0:
			return 0, fmt.Errorf("the text occurs more than once: add context or an @@ line:\n%s", strings.Join(want, "\n"))
		case same:
			found = i
		}
	}
	if found < 0 {
		return 0, fmt.Errorf("no such text:\n%s", strings.Join(want, "\n"))
	}
	return found, nil
}
