package nics

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// WriteDefects prints the defects of each provider, those of several providers first, and
// mutants after the others.
func WriteDefects(w io.Writer) error {
	all := AllDefects()
	list := func(title string, mutants bool, has func(Defect) bool) error {
		some := slices.DeleteFunc(slices.Clone(all), func(q Defect) bool { return q.Mutant != mutants || !has(q) })
		if len(some) == 0 {
			return nil
		}
		if mutants {
			title += ", built from the sources, for conform only"
		}
		return writeDefects(w, title, some)
	}
	shared := func(q Defect) bool { return len(q.Of) > 1 }
	if err := errors.Join(list("Of several kinds of NICs", false, shared), list("\nOf several kinds of NICs", true, shared)); err != nil {
		return err
	}
	for _, p := range All() {
		own := func(q Defect) bool { return !shared(q) && q.Of[0] == p.Name }
		title := fmt.Sprintf("\nOf %s NICs (%s)", p.Title, p.Name)
		if err := errors.Join(list(title, false, own), list(title, true, own)); err != nil {
			return err
		}
	}
	return nil
}

func writeDefects(w io.Writer, title string, defects []Defect) error {
	if _, err := fmt.Fprintln(w, title+":"); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, q := range defects {
		imitates := q.Imitates
		if imitates == "" {
			imitates = "-"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", q.Name, imitates, q.Does)
	}
	return t.Flush()
}
