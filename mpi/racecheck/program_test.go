package racecheck_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/racecheck"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// rank is a rank of a program under test.
type rank struct{ *mpi.World }

// do panics with an error of a call, which fails the program.
func (rank) do(err error) {
	if err != nil {
		panic(err)
	}
}

// window allocates a window of n bytes on each rank.
func (r rank) window(n int) *mpi.Win {
	win, err := r.WinAllocate(n)
	r.do(err)
	return win
}

// request returns the request of a call.
func (r rank) request(q *mpi.Request, err error) *mpi.Request {
	r.do(err)
	return q
}

// wait waits for a request.
func (r rank) wait(q *mpi.Request) {
	_, err := q.Wait()
	r.do(err)
}

// buffer returns n bytes that other ranks do not have in common.
func buffer(n int) []byte { return make([]byte, n) }

// simulate runs a program on ranks of a simulated fabric, and returns the races.
func simulate(t *testing.T, ranks int, program func(r rank)) []explore.Finding {
	t.Helper()
	c := racecheck.New(ranks)
	observe(t, c, program)
	found, _ := c.Findings()
	return found
}

// observe runs a program with a checker.
func observe(t *testing.T, c *racecheck.Checker, program func(r rank)) {
	t.Helper()
	ranks := c.Ranks()
	_, err := mpihost.InWorld(mpihost.Fabric{Ranks: ranks}, func(e *transport.Env) error {
		return mpi.Run(e, mpi.Options{Races: c}, func(w *mpi.World) error {
			program(rank{w})
			return nil
		})
	})
	must.Do(t, err)
}

// verdict is what was found in a program, compared with its label.
type verdict string

const (
	truePositive  verdict = "true positive"
	falsePositive verdict = "false positive"
	trueNegative  verdict = "true negative"
	falseNegative verdict = "false negative"
)

// judge compares the findings in a program with the pairs of lines that race. A race is found only if a finding
// names both lines. A finding with other lines is false.
func judge(found []explore.Finding, lines [][2]int) (verdict, string) {
	var texts []string
	right := 0
	for _, f := range found {
		texts = append(texts, f.Text)
		a, b := f.Places[0].Line, f.Places[1].Line
		if slices.Contains(lines, [2]int{a, b}) || slices.Contains(lines, [2]int{b, a}) {
			right++
		}
	}
	v := trueNegative
	switch {
	case right < len(found):
		v = falsePositive
	case right > 0:
		v = truePositive
	case len(lines) > 0:
		v = falseNegative
	}
	return v, strings.Join(texts, "\n")
}

// source has the comments of the files of this package, by line.
var source = func() map[string]map[int]string {
	comments := map[string]map[int]string{}
	files, _ := filepath.Glob("*_test.go")
	for _, name := range files {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			panic(err)
		}
		comments[name] = map[int]string{}
		for _, group := range f.Comments {
			for _, c := range group.List {
				comments[name][set.Position(c.Pos()).Line] = strings.TrimSpace(strings.TrimPrefix(c.Text, "//"))
			}
		}
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				functionLines[name+" "+d.Name.Name] = [2]int{set.Position(d.Pos()).Line, set.Position(d.End()).Line}
			}
		}
	}
	return comments
}()

// functionLines are the first and the last line of each function, by file and name.
var functionLines = map[string][2]int{}

// markedLines returns the pair of lines that have the comment RACE in a program, or in the function that it
// shares with others; a single line races with itself. There is none in a program without a race.
func markedLines(program func(r rank), shared string) (name string, pairs [][2]int) {
	f := runtime.FuncForPC(reflect.ValueOf(program).Pointer())
	name = f.Name()[strings.LastIndex(f.Name(), ".")+1:]
	file, _ := f.FileLine(f.Entry())
	lines := marksIn(filepath.Base(file), name)
	if shared != "" {
		for _, other := range slices.Sorted(maps.Keys(source)) {
			lines = append(lines, marksIn(other, shared)...)
		}
	}
	switch len(lines) {
	case 0:
		return name, nil
	case 1:
		return name, [][2]int{{lines[0], lines[0]}}
	case 2:
		return name, [][2]int{{lines[0], lines[1]}}
	}
	panic(fmt.Sprintf("%s: the mark RACE is on lines %v", name, lines))
}

// marksIn returns the lines of a function with the mark RACE.
func marksIn(file, function string) (lines []int) {
	span := functionLines[file+" "+function]
	for line := span[0]; line <= span[1]; line++ {
		if source[file][line] == "RACE" {
			lines = append(lines, line)
		}
	}
	return lines
}

// receive receives an empty message.
func (r rank) receive(from int) {
	_, err := r.Recv(nil, from, mpi.AnyTag)
	r.do(err)
}
