package racecheck_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"

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
func simulate(ranks int, program func(r rank)) ([]racecheck.Finding, error) {
	c := racecheck.New(ranks)
	_, err := mpihost.InWorld(mpihost.Fabric{Ranks: ranks}, func(e *transport.Env) error {
		return mpi.Run(e, mpi.Options{Races: c}, func(w *mpi.World) error {
			program(rank{w})
			return nil
		})
	})
	found, _ := c.Findings()
	return found, err
}

// verdict is what was found in a program, compared with its label.
type verdict string

const (
	truePositive  verdict = "true positive"
	falsePositive verdict = "false positive"
	trueNegative  verdict = "true negative"
	falseNegative verdict = "false negative"
)

// judge runs a program. A race is found only if a finding names both lines; in a program without a race
// every finding is false.
func judge(ranks int, program func(r rank), lines [][2]int) (verdict, string) {
	found, err := simulate(ranks, program)
	var texts []string
	if err != nil {
		texts = append(texts, err.Error())
	}
	reported := false
	for _, f := range found {
		texts = append(texts, f.Text)
		if len(f.Places) == 2 && slices.ContainsFunc(lines, func(pair [2]int) bool {
			a, b := f.Places[0].Line, f.Places[1].Line
			return pair == [2]int{a, b} || pair == [2]int{b, a}
		}) {
			reported = true
		}
	}
	text := strings.Join(texts, "\n")
	switch {
	case err != nil && len(lines) > 0:
		return falseNegative, text
	case err != nil:
		return falsePositive, text
	case len(lines) > 0 && reported:
		return truePositive, text
	case len(lines) > 0:
		return falseNegative, text
	case len(found) > 0:
		return falsePositive, text
	}
	return trueNegative, text
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
				functionLines[d.Name.Name] = [2]int{set.Position(d.Pos()).Line, set.Position(d.End()).Line}
			}
		}
	}
	return comments
}()

// functionLines are the first and the last line of each function.
var functionLines = map[string][2]int{}

// markedLines returns the pairs of lines of a function with the same comment RACE or RACE and a number; a
// single line races with itself.
func markedLines(program func(r rank)) (name string, pairs [][2]int) {
	f := runtime.FuncForPC(reflect.ValueOf(program).Pointer())
	name = f.Name()[strings.LastIndex(f.Name(), ".")+1:]
	file, _ := f.FileLine(f.Entry())
	span := functionLines[name]
	marks := map[string][]int{}
	for line, text := range source[filepath.Base(file)] {
		if line >= span[0] && line <= span[1] && strings.HasPrefix(text, "RACE") {
			marks[text] = append(marks[text], line)
		}
	}
	for mark, lines := range marks {
		switch len(lines) {
		case 1:
			pairs = append(pairs, [2]int{lines[0], lines[0]})
		case 2:
			pairs = append(pairs, [2]int{lines[0], lines[1]})
		default:
			panic(fmt.Sprintf("%s: %d lines with the mark %s", name, len(lines), mark))
		}
	}
	return name, pairs
}

// receive receives an empty message.
func (r rank) receive(from int) {
	_, err := r.Recv(nil, from, mpi.AnyTag)
	r.do(err)
}
