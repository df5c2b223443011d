package jsonschema

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Source holds doc comments and constants of named string types, which reflection does
// not provide. Keys are qualified names such as "report.Verdict".
type Source struct {
	types  map[string]string   // doc comment of a type
	fields map[string]string   // of a field: "report.Run.Seed"
	values map[string][]string // constants of a string type, in order
}

// ReadSource parses the Go files of package directories, except tests.
func ReadSource(dirs ...string) (*Source, error) {
	s := &Source{types: map[string]string{}, fields: map[string]string{}, values: map[string][]string{}}
	for _, dir := range dirs {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return nil, err
		}
		found := false
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			found = true
			if err := s.readFile(name); err != nil {
				return nil, err
			}
		}
		if !found {
			return nil, fmt.Errorf("%s: no Go files: want the directory of a package", dir)
		}
	}
	return s, nil
}

func (s *Source) readFile(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				s.readType(file.Name.Name+"."+spec.Name.Name, decl, spec)
			case *ast.ValueSpec:
				if decl.Tok == token.CONST {
					s.readConst(file.Name.Name, spec)
				}
			}
		}
	}
	return nil
}

func (s *Source) readType(name string, decl *ast.GenDecl, spec *ast.TypeSpec) {
	doc := spec.Doc
	if doc == nil {
		doc = decl.Doc
	}
	s.types[name] = sentence(spec.Name.Name, doc, spec.Comment)
	st, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range st.Fields.List {
		for _, id := range f.Names {
			s.fields[name+"."+id.Name] = sentence(id.Name, f.Doc, f.Comment)
		}
	}
}

func (s *Source) readConst(pkg string, spec *ast.ValueSpec) {
	typ, ok := spec.Type.(*ast.Ident)
	if !ok {
		return
	}
	for _, v := range spec.Values {
		lit, ok := v.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			continue
		}
		if text, err := strconv.Unquote(lit.Value); err == nil {
			s.values[pkg+"."+typ.Name] = append(s.values[pkg+"."+typ.Name], text)
		}
	}
}

// sentence joins comments to one line. It removes a leading "X is" or "X are", where X is
// the Go name, because a schema has its own names.
func sentence(name string, groups ...*ast.CommentGroup) string {
	var words []string
	for _, g := range groups {
		words = append(words, strings.Fields(g.Text())...)
	}
	if len(words) > 2 && words[0] == name && (words[1] == "is" || words[1] == "are") {
		words = words[2:]
	}
	text := strings.Join(words, " ")
	if text == "" {
		return ""
	}
	first := strings.ToUpper(text[:1]) + text[1:]
	if strings.HasSuffix(first, ".") || strings.HasSuffix(first, "…") {
		return first
	}
	return first + "."
}
