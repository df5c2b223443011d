package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// visitor checks the files of a package against a Purity rule.
type visitor struct {
	rule  Purity
	pkg   *Package
	fset  *token.FileSet
	info  *types.Info
	scope *types.Scope // of the package, to find package-level variables
	found []Finding

	sorted map[*ast.Ident]bool // calls such as maps.Keys in slices.Sorted(maps.Keys(m))
	marks  map[int]*mark       // of the current file, by the line to which they apply
}

// mark is one OrderedMark comment.
type mark struct {
	pos    token.Pos
	reason string
	used   bool
}

// wallClock are the functions of package time that use the system clock.
var wallClock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// mapWalks are the functions of package maps that iterate in map order.
var mapWalks = []string{"All", "Keys", "Values"}

func (v *visitor) file(f *ast.File) {
	v.readMarks(f)
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		setup := ok && fn.Recv == nil && fn.Name.Name == "init"
		ast.Inspect(d, func(n ast.Node) bool {
			v.node(n, setup)
			return true
		})
	}
	for _, m := range v.marks {
		if !m.used {
			v.report(m.pos, "has a "+OrderedMark+" comment that applies to no map iteration")
		} else if m.reason == "" {
			v.report(m.pos, "has a "+OrderedMark+" comment without a reason")
		}
	}
}

func (v *visitor) readMarks(f *ast.File) {
	v.marks = map[int]*mark{}
	code := map[int]bool{} // lines with code
	ast.Inspect(f, func(n ast.Node) bool {
		switch n.(type) {
		case nil, *ast.Comment, *ast.CommentGroup:
		default:
			code[v.fset.Position(n.Pos()).Line] = true
			code[v.fset.Position(n.End()-1).Line] = true
		}
		return true
	})
	for _, group := range f.Comments {
		for _, c := range group.List {
			rest, ok := strings.CutPrefix(c.Text, OrderedMark)
			if !ok {
				continue
			}
			line := v.fset.Position(c.Pos()).Line
			if !code[line] {
				line++ // a comment above applies to the next line
			}
			v.marks[line] = &mark{pos: c.Pos(), reason: strings.TrimSpace(rest)}
		}
	}
}

func (v *visitor) node(n ast.Node, setup bool) {
	switch n := n.(type) {
	case *ast.Ident:
		v.use(n)
	case *ast.GoStmt:
		v.ban(BanConcurrency, n.Pos(), "starts a goroutine")
	case *ast.SelectStmt:
		v.ban(BanConcurrency, n.Pos(), "selects between channels")
	case *ast.ChanType:
		v.ban(BanConcurrency, n.Pos(), "has a channel")
	case *ast.SendStmt:
		v.ban(BanConcurrency, n.Pos(), "sends on a channel")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			v.ban(BanConcurrency, n.Pos(), "receives from a channel")
		}
	case *ast.RangeStmt:
		v.walk(n)
	case *ast.CallExpr:
		v.sorting(n)
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE && !setup {
			for _, target := range n.Lhs {
				v.write(target)
			}
		}
	case *ast.IncDecStmt:
		if !setup {
			v.write(n.X)
		}
	}
}

// use checks the function that an identifier refers to, also through import aliases and
// function values.
func (v *visitor) use(id *ast.Ident) {
	fn, ok := v.info.Uses[id].(*types.Func)
	if !ok || fn.Pkg() == nil {
		return
	}
	if fn.Signature().Recv() != nil {
		if name := fn.FullName(); name == "(reflect.Value).MapKeys" || name == "(reflect.Value).MapRange" {
			v.mapOrder(id.Pos(), "iterates over a map by reflection")
		}
		return
	}
	switch fn.Pkg().Path() {
	case "time":
		if slices.Contains(wallClock, fn.Name()) {
			v.ban(BanClock, id.Pos(), "uses time."+fn.Name())
		}
	case "math/rand", "math/rand/v2":
		if !strings.HasPrefix(fn.Name(), "New") {
			v.ban(BanGlobalRand, id.Pos(), "uses rand."+fn.Name()+", which depends on no seed of the run")
		}
	case "maps":
		if slices.Contains(mapWalks, fn.Name()) && !v.sorted[id] {
			v.mapOrder(id.Pos(), "iterates over a map by maps."+fn.Name())
		}
	}
}

// walk checks a range statement over a map or a channel.
func (v *visitor) walk(n *ast.RangeStmt) {
	switch kindOf(v.info.TypeOf(n.X)).(type) {
	case *types.Map:
		v.mapOrder(n.Pos(), "iterates over a map")
	case *types.Chan:
		v.ban(BanConcurrency, n.Pos(), "receives from a channel")
	}
}

// sorting records the inner call of slices.Sorted(maps.Keys(m)), which is allowed.
// ast.Inspect visits the outer call first.
func (v *visitor) sorting(n *ast.CallExpr) {
	outer := v.callee(n)
	if outer == nil || len(n.Args) == 0 || !strings.HasPrefix(outer.Name, "Sorted") || v.info.Uses[outer].Pkg().Path() != "slices" {
		return
	}
	if inner, ok := ast.Unparen(n.Args[0]).(*ast.CallExpr); ok {
		v.sorted[v.callee(inner)] = true
	}
}

// callee returns the identifier of the called package-level function, or nil.
func (v *visitor) callee(n *ast.CallExpr) *ast.Ident {
	fun := ast.Unparen(n.Fun)
	switch ix := fun.(type) { // explicit instantiation
	case *ast.IndexExpr:
		fun = ix.X
	case *ast.IndexListExpr:
		fun = ix.X
	}
	var id *ast.Ident
	switch f := fun.(type) {
	case *ast.SelectorExpr:
		id = f.Sel
	case *ast.Ident:
		id = f
	}
	if fn, ok := v.info.Uses[id].(*types.Func); ok && fn.Pkg() != nil && fn.Signature().Recv() == nil {
		return id
	}
	return nil
}

// kindOf returns the underlying type, also of a type parameter such as M in
// func f[M ~map[K]V].
func kindOf(t types.Type) types.Type {
	tp, ok := types.Unalias(t).(*types.TypeParam)
	if !ok {
		return t.Underlying()
	}
	union, ok := tp.Underlying().(*types.Interface)
	if !ok {
		return t
	}
	for e := range union.EmbeddedTypes() {
		switch e := e.(type) {
		case *types.Union:
			return e.Term(0).Type().Underlying()
		default:
			return e.Underlying()
		}
	}
	return t
}

// write reports an assignment to a package-level variable, which several engines in one
// process would share.
func (v *visitor) write(target ast.Expr) {
	for {
		switch e := target.(type) {
		case *ast.ParenExpr:
			target = e.X
		case *ast.IndexExpr:
			target = e.X
		case *ast.SelectorExpr:
			target = e.X
		case *ast.StarExpr:
			target = e.X
		case *ast.SliceExpr:
			target = e.X
		case *ast.Ident:
			if obj, ok := v.info.Uses[e].(*types.Var); ok && obj.Parent() == v.scope {
				v.ban(BanGlobals, e.Pos(), "writes the package-level variable "+e.Name)
			}
			return
		default:
			return
		}
	}
}

func (v *visitor) mapOrder(pos token.Pos, what string) {
	if m := v.marks[v.fset.Position(pos).Line]; m != nil {
		m.used = true
		return
	}
	v.ban(BanMapOrder, pos, what+", whose order differs from run to run: sort, or say why not with "+OrderedMark)
}

func (v *visitor) ban(b Ban, pos token.Pos, what string) {
	if v.rule.Bans&b != 0 {
		v.report(pos, what)
	}
}

func (v *visitor) report(pos token.Pos, what string) {
	v.found = append(v.found, Finding{Pos: v.fset.Position(pos), Msg: v.because(what)})
}

func (v *visitor) because(what string) string {
	return fmt.Sprintf("%s %s: %s (rule %q)", shown(v.pkg.Path), what, v.rule.Why, v.rule.Name)
}
