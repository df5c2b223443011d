package mutant

import (
	"fmt"
	"strings"
)

// Mutant is a deliberate defect of the sources.
type Mutant struct {
	Name     string
	Imitates string // the clauses that it violates, or the device that behaves so
	Does     string
	// Providers are the kinds of NICs that can have it.
	Providers []string
	Hunks     []Hunk
}

// Hunk is a change of a file.
type Hunk struct {
	File string // from the root of the module, with slashes
	// Decl is the declaration that has the text: a function, Type.method or a type.
	// It is empty if the text occurs once in the file.
	Decl     string
	Old, New []string
	Imports  []string // added
}

// Parse parses a file of mutants, in the format of the package comment. Errors begin with its name.
func Parse(name, text string) (all []Mutant, err error) {
	r := reader{}
	for i, line := range strings.Split(text, "\n") {
		if err := r.readLine(line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
	}
	r.endHunk()
	for i := range r.all {
		if len(r.all[i].Hunks) == 0 {
			return nil, fmt.Errorf("%s: mutant %s changes nothing", name, r.all[i].Name)
		}
	}
	return r.all, nil
}

// reader reads mutants line by line.
type reader struct {
	all       []Mutant
	providers []string // of the following mutants
	file      string   // of the following hunks
	hunk      Hunk     // the lines so far
}

// readLine reads a line: a comment, the providers of the mutants that follow, the first line of a
// mutant (its name, the clauses that it violates or the device that it imitates, what it does), the
// name of its next file, the beginning (@@) or a line of a hunk, or the empty line after it.
func (r *reader) readLine(line string) error {
	switch {
	case strings.HasPrefix(line, "#"):
	case strings.HasPrefix(line, "providers:"):
		r.providers = strings.Fields(line)[1:]
	case strings.TrimSpace(line) == "":
		r.endHunk()
	case line[0] == '-' || line[0] == '+' || line[0] == ' ':
		if r.file == "" {
			return fmt.Errorf("text before the name of its file")
		}
		r.addToHunk(line[0], line[1:])
	case strings.HasPrefix(line, "@@"):
		r.endHunk()
		r.hunk.Decl = strings.TrimSpace(strings.TrimPrefix(line, "@@"))
	case strings.HasSuffix(line, ".go"):
		if len(r.all) == 0 {
			return fmt.Errorf("a file before the name of its mutant")
		}
		r.endHunk()
		r.file = line
	default:
		fields := strings.Split(line, " | ")
		if len(fields) != 3 {
			return fmt.Errorf("%q is none of: NAME | CLAUSES OR DEVICE | WHAT IT DOES, a Go file, @@, text that begins with -, + or a space", line)
		}
		r.endHunk()
		r.file = ""
		r.all = append(r.all, Mutant{Name: fields[0], Imitates: fields[1], Does: fields[2], Providers: r.providers})
	}
	return nil
}

// addToHunk adds a line to the hunk: kind is '-' for a removed, '+' for an added and ' ' for a
// kept line. An added import is not part of the text.
func (r *reader) addToHunk(kind byte, text string) {
	if spec, ok := strings.CutPrefix(text, "import "); ok && kind == '+' {
		r.hunk.Imports = append(r.hunk.Imports, spec)
		return
	}
	if kind != '+' {
		r.hunk.Old = append(r.hunk.Old, text)
	}
	if kind != '-' {
		r.hunk.New = append(r.hunk.New, text)
	}
}

// endHunk adds the hunk, if it is not empty, to the last mutant, and begins another.
func (r *reader) endHunk() {
	if len(r.hunk.Old)+len(r.hunk.New)+len(r.hunk.Imports) > 0 {
		r.hunk.File = r.file
		m := &r.all[len(r.all)-1]
		m.Hunks = append(m.Hunks, r.hunk)
	}
	r.hunk = Hunk{}
}
