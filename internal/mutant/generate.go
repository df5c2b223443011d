package mutant

import (
	"fmt"
	"go/ast"
	"go/token"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Generate returns mechanical mutants of the functions in Go files, whose names are relative to
// root, the folder of the module. Each mutant changes one place: it negates a condition, replaces
// an operator, adds one to a constant, drops a statement, or swaps operands. Some mutants may not
// compile; [BuildValid] leaves those out.
func Generate(root string, files []string) (all []Mutant, err error) {
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		s, err := parse(name, string(text))
		if err != nil {
			return nil, err
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && canDispatch(f) {
				all = append(all, s.mutants(f)...)
			}
		}
	}
	return all, nil
}

// canDispatch reports whether a function can call a mutated variant of itself, as Overlay makes it
// do: its receiver and parameters have names, and it is neither init nor a function with type
// parameters. A parameter may be blank (_), because Overlay gives it a name; a receiver may not.
func canDispatch(f *ast.FuncDecl) bool {
	for _, p := range f.Type.Params.List {
		if len(p.Names) == 0 {
			return false
		}
	}
	if f.Recv == nil {
		return f.Type.TypeParams == nil && f.Name.Name != "init"
	}
	return len(f.Recv.List[0].Names) == 1 && f.Recv.List[0].Names[0].Name != "_"
}

// edit is a replacement of a part of a function.
type edit struct {
	from, to token.Pos
	with     string // the new text
	does     string // describes the edit
}

// mutants returns a mutant of a function for each possible edit of each node in its body. Equal
// edits are numbered, so that Does is unique in the function.
func (s *source) mutants(f *ast.FuncDecl) (all []Mutant) {
	var parents []ast.Node
	equal := map[string]int{}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if n == nil {
			parents = parents[:len(parents)-1]
			return true
		}
		for _, e := range s.edits(n, parents) {
			m := s.mutant(f, e)
			equal[m.Does]++
			if number := equal[m.Does]; number > 1 {
				m.Does += fmt.Sprintf(" #%d", number)
			}
			all = append(all, m)
		}
		parents = append(parents, n)
		return true
	})
	return all
}

// mutant returns the mutant of an edit of function f. Its hunk replaces the whole function.
func (s *source) mutant(f *ast.FuncDecl, e edit) Mutant {
	at := s.fset.Position(e.from)
	first, last := s.fset.Position(f.Pos()).Line-1, s.fset.Position(f.End()).Line
	old := s.text[at.Offset:s.offset(e.to)]
	changed := s.text[:at.Offset] + e.with + s.text[s.offset(e.to):]
	does := oneLine(old) + " -> " + oneLine(e.with)
	if e.does == dropsStatement {
		does = "drops " + oneLine(old)
	}
	// The edit may have changed the number of lines.
	newLast := last + strings.Count(changed, "\n") - strings.Count(s.text, "\n")
	return Mutant{
		Name: fmt.Sprintf("%s:%d:%d %s", s.name, at.Line, at.Column, e.does),
		Does: funcName(f) + ": " + does,
		Hunks: []Hunk{{
			File: s.name, Decl: funcName(f),
			Old: strings.Split(s.text, "\n")[first:last], New: strings.Split(changed, "\n")[first:newLast],
		}},
	}
}

// oneLine replaces each run of white space by a space.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// edits returns the possible edits of a node itself, not of its children. parents are the nodes
// that contain it, the innermost last.
func (s *source) edits(n ast.Node, parents []ast.Node) []edit {
	switch n := n.(type) {
	case *ast.IfStmt:
		return []edit{s.negate(n.Cond)}
	case *ast.ForStmt:
		if n.Cond != nil {
			return []edit{s.negate(n.Cond)}
		}
	case *ast.CaseClause:
		// The parent is the block of the switch, and its parent the switch. Without a tag (an
		// expression after "switch"), the cases are conditions.
		if sw, ok := parents[len(parents)-2].(*ast.SwitchStmt); ok && sw.Tag == nil && len(n.List) == 1 {
			return []edit{s.negate(n.List[0])}
		}
	case *ast.BinaryExpr:
		return s.editBinary(n)
	case *ast.BasicLit:
		return addOne(n)
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.AssignStmt:
		return s.dropStatement(n.(ast.Stmt), parents)
	}
	return nil
}

// negate returns the edit that negates a condition.
func (s *source) negate(cond ast.Expr) edit {
	return edit{cond.Pos(), cond.End(), "!(" + s.nodeText(cond) + ")", "negates the condition"}
}

// replacements of binary operators.
var replacements = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
}

// editBinary returns the edits of a binary expression: another operator, and the operands of -, /
// and % in the other order.
func (s *source) editBinary(n *ast.BinaryExpr) (all []edit) {
	if op, ok := replacements[n.Op]; ok {
		all = append(all, edit{n.OpPos, n.OpPos + token.Pos(len(n.Op.String())), op.String(), fmt.Sprintf("has %s for %s", op, n.Op)})
	}
	if slices.Contains([]token.Token{token.SUB, token.QUO, token.REM}, n.Op) {
		x, y := s.nodeText(n.X), s.nodeText(n.Y)
		all = append(all, edit{n.Pos(), n.End(), "(" + y + ") " + n.Op.String() + " (" + x + ")", "swaps the operands"})
	}
	return all
}

// addOne returns the edit that adds one to an integer literal; none for other literals.
func addOne(n *ast.BasicLit) []edit {
	v, ok := new(big.Int).SetString(n.Value, 0)
	if n.Kind != token.INT || !ok {
		return nil
	}
	return []edit{{n.Pos(), n.End(), v.Add(v, big.NewInt(1)).String(), "has a constant that is one more"}}
}

const dropsStatement = "drops the statement"

// dropStatement returns the edit that keeps a statement from running. There is none for a
// declaration, for the init or post statement of an if, for or switch, and for the communication of
// a select clause.
func (s *source) dropStatement(n ast.Stmt, parents []ast.Node) []edit {
	if a, ok := n.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
		return nil
	}
	switch parent := parents[len(parents)-1].(type) {
	case *ast.BlockStmt, *ast.CaseClause:
	case *ast.CommClause:
		if n == parent.Comm {
			return nil
		}
	default:
		return nil
	}
	// In a block that never runs, its operands count as used, so that the rest compiles.
	return []edit{{n.Pos(), n.End(), "if false {\n" + s.nodeText(n) + "\n}", dropsStatement}}
}
