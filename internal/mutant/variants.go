package mutant

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// variants collects the variants of a file's declarations.
type variants struct {
	*source
	decls    map[string]ast.Node
	dispatch map[string][]int    // the mutants that have a variant of a function
	fields   map[string][]string // added to structs
	imports  []string            // added
	added    []string            // declarations
	newInPkg map[string]string   // the text of all declarations that mutants add to the package, by name
	numbers  *numbering
}

// numbering numbers the functions that have variants.
type numbering struct {
	count     int
	functions [][]int // of each mutant
}

// addFunction returns a new number for a function, and records that the given mutants change the
// function. The number of a mutant is its index plus one.
func (n *numbering) addFunction(mutants []int) (number int) {
	for _, m := range mutants {
		n.functions[m-1] = append(n.functions[m-1], n.count)
	}
	n.count++
	return n.count - 1
}

// newVariants parses the text of a file, to which addMutant then adds variants: functions as
// mutants change them. The files of a package share inPkg, the declarations that mutants add to it;
// all files share numbers.
func newVariants(name, text string, inPkg map[string]string, numbers *numbering) (*variants, error) {
	s, err := parse(name, text)
	if err != nil {
		return nil, err
	}
	return &variants{source: s, decls: s.decls(), dispatch: map[string][]int{}, fields: map[string][]string{}, newInPkg: inPkg, numbers: numbers}, nil
}

// addMutant applies the hunks of a mutant to the original file, and keeps the declarations and
// imports that differ. number is the mutant's index plus one.
func (v *variants) addMutant(number int, m *Mutant) error {
	var hunks []Hunk
	for _, h := range m.Hunks {
		if h.File == v.name {
			hunks = append(hunks, h)
		}
	}
	text, err := v.apply(hunks)
	if err != nil {
		return err
	}
	mutated, err := parse(v.name, text)
	if err != nil {
		return err
	}
	for _, spec := range mutated.file.Imports {
		if line := mutated.nodeText(spec); !slices.Contains(v.imports, line) && !v.hasImport(line) {
			v.imports = append(v.imports, line)
		}
	}
	decls := mutated.decls()
	for _, name := range slices.Sorted(maps.Keys(decls)) {
		if err := v.addDecl(number, name, mutated, decls[name]); err != nil {
			return err
		}
	}
	return nil
}

// hasImport reports whether the original file has an import.
func (v *variants) hasImport(line string) bool {
	return slices.ContainsFunc(v.file.Imports, func(s *ast.ImportSpec) bool { return v.nodeText(s) == line })
}

// addDecl keeps a declaration d of a mutated file if it differs from the original: a changed
// function as a variant with the mutant's number, new fields of a struct, or a new declaration.
// Changes of other types, of variables and of constants are errors.
func (v *variants) addDecl(number int, name string, mutated *source, d ast.Node) error {
	text := mutated.nodeText(d)
	was, existed := v.decls[name]
	if existed && v.nodeText(was) == text {
		return nil
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if existed {
			v.dispatch[name] = append(v.dispatch[name], number)
			v.added = append(v.added, variantText(mutated, d, number))
			return nil
		}
		return v.addNew(name, text)
	case *ast.TypeSpec:
		if !existed {
			return v.addNew(name, "type "+text)
		}
		return v.addFields(name, mutated, d)
	case *ast.ValueSpec:
		if !existed {
			return v.addNew(name, mutated.keyword(d)+" "+text)
		}
	}
	return fmt.Errorf("%s: a mutant cannot change the constant or variable %s: change its uses", v.name, name)
}

// addNew adds a declaration that the original does not have. Several mutants may declare the same,
// which is added once.
func (v *variants) addNew(name, text string) error {
	if was, ok := v.newInPkg[name]; ok && was != text {
		return fmt.Errorf("%s: another mutant declares %s differently", v.name, name)
	} else if ok {
		return nil
	}
	v.newInPkg[name] = text
	v.added = append(v.added, text)
	return nil
}

// addFields adds to v.fields[name] the fields of a mutant's struct d that neither the original nor
// an earlier mutant has. It returns an error if the type is not a struct.
func (v *variants) addFields(name string, mutated *source, d *ast.TypeSpec) error {
	st, ok := d.Type.(*ast.StructType)
	old, wasStruct := v.decls[name].(*ast.TypeSpec).Type.(*ast.StructType)
	if !ok || !wasStruct {
		return fmt.Errorf("%s: a mutant can only add fields to a type: %s", v.name, name)
	}
	var have []string
	for _, f := range old.Fields.List {
		have = append(have, v.nodeText(f))
	}
	have = append(have, v.fields[name]...)
	for _, f := range st.Fields.List {
		text := mutated.nodeText(f)
		// A new field may change how gofmt aligns the others.
		if !slices.ContainsFunc(have, func(h string) bool { return oneLine(h) == oneLine(text) }) {
			v.fields[name] = append(v.fields[name], text)
		}
	}
	return nil
}

// keyword returns the keyword, var or const, of the declaration that contains a spec.
func (s *source) keyword(spec ast.Spec) string {
	for _, d := range s.file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && slices.Contains(g.Specs, spec) {
			return g.Tok.String()
		}
	}
	return "var"
}

// variantText returns the text of a mutant's function d, renamed to the mutant's variant.
func variantText(s *source, d *ast.FuncDecl, number int) string {
	return s.between(d.Pos(), d.Name.Pos()) + variantName(d, number) + s.between(d.Name.End(), d.End())
}

// variantName returns the name of the variant of a function for the mutant with a number.
func variantName(d *ast.FuncDecl, number int) string {
	return fmt.Sprintf("%s_mutant%d", d.Name.Name, number)
}

// render returns the text of the original file with all that mutants add: variants of functions,
// fields, declarations and imports. A function that has variants begins with a switch that calls
// the variant of the selected mutant.
func (v *variants) render() string {
	type replacement struct {
		from, to int // offsets; equal for an insertion
		text     string
	}
	var all []replacement
	for _, name := range slices.Sorted(maps.Keys(v.dispatch)) {
		d := v.decls[name].(*ast.FuncDecl)
		for i, p := range params(d) { // give blank parameters names, so that variantCalls can pass them on
			if p.Name == "_" {
				all = append(all, replacement{v.offset(p.Pos()), v.offset(p.End()), fmt.Sprintf("_p%d", i)})
			}
		}
		start := v.offset(d.Body.Lbrace) + 1
		all = append(all, replacement{start, start, variantCalls(d, v.numbers.addFunction(v.dispatch[name]), v.dispatch[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(v.fields)) {
		end := v.offset(v.decls[name].(*ast.TypeSpec).Type.(*ast.StructType).Fields.Closing)
		all = append(all, replacement{end, end, strings.Join(v.fields[name], "\n") + "\n"})
	}
	head := v.offset(v.file.Name.End())
	all = append(all, replacement{head, head, "\n\nimport (\n\t\"" + module + "/internal/mutant\"\n\t" + strings.Join(v.imports, "\n\t") + "\n)\n"})
	// From the end of the file to its beginning, so that offsets stay valid.
	slices.SortFunc(all, func(a, b replacement) int { return b.from - a.from })
	text := v.text
	for _, r := range all {
		text = text[:r.from] + r.text + text[r.to:]
	}
	if len(v.dispatch) == 0 {
		text += "\nvar _ = mutant.Enter\n" // uses the import
	}
	return text + "\n" + strings.Join(v.added, "\n\n") + "\n"
}

// params returns the names of a function's parameters, without the receiver.
func params(d *ast.FuncDecl) (all []*ast.Ident) {
	for _, f := range d.Type.Params.List {
		all = append(all, f.Names...)
	}
	return all
}

// variantCalls returns the beginning of the body of function d: a switch that calls the variant of
// the selected mutant instead, if that is one of mutants. function is the number of d.
func variantCalls(d *ast.FuncDecl, function int, mutants []int) string {
	var args []string
	for i, p := range params(d) {
		if p.Name == "_" {
			args = append(args, fmt.Sprintf("_p%d", i)) // as render renames it
			continue
		}
		args = append(args, p.Name)
	}
	if list := d.Type.Params.List; len(list) > 0 {
		if _, variadic := list[len(list)-1].Type.(*ast.Ellipsis); variadic {
			args[len(args)-1] += "..."
		}
	}
	receiver := ""
	if d.Recv != nil {
		receiver = d.Recv.List[0].Names[0].Name + "."
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nswitch mutant.Enter(%d) {", function)
	for _, n := range mutants {
		call := fmt.Sprintf("%s%s(%s)", receiver, variantName(d, n), strings.Join(args, ", "))
		if d.Type.Results != nil {
			fmt.Fprintf(&b, "\ncase %d:\nreturn %s", n, call)
		} else {
			fmt.Fprintf(&b, "\ncase %d:\n%s\nreturn", n, call)
		}
	}
	return b.String() + "\n}\n"
}
