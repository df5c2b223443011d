package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// thin is the digit group separator on the page, a thin space.
const thin = "\u202f"

func count(n uint64) string { return textfmt.Count(n, thin) }

// headline summarizes the run in a few words.
func headline(r *Run) string {
	n := r.Counts()
	total := len(r.Scenarios)
	switch bad := len(r.Bad()); {
	case total == 0:
		return "Nothing was run"
	case bad > 0:
		return fmt.Sprintf("%d of %d did not pass", bad, total)
	case n[Passed] == 0:
		return fmt.Sprintf("All %d were skipped", total)
	case n[Skipped] > 0:
		return fmt.Sprintf("%d passed, %d skipped", n[Passed], n[Skipped])
	case total == 1:
		return "It passed"
	default:
		return fmt.Sprintf("All %d passed", total)
	}
}

// runFacts returns the facts about a run below the headline of the page.
func runFacts(r *Run) (facts kit.Facts) {
	facts.AddCommand("Command", r.Command)
	seed := "each scenario's own"
	if r.Seed != 0 {
		seed = fmt.Sprint(r.Seed)
	}
	facts.Add("Seed", seed)
	facts.Add("Started", kit.Stamp(r.Started))
	facts.Add("Took", textfmt.Duration(r.Wall.Round(time.Millisecond)))
	facts.Add("Machine", r.Machine.String())
	facts.Add("fabrictest", r.Tool)
	return facts
}

// String describes the machine in a few words.
func (m Machine) String() string {
	parts := []string{m.OS + "/" + m.Arch, m.Kernel, textfmt.Plural(m.CPUs, "CPU")}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" || s == "/" }), ", ")
}

// clip truncates a text from outside for the page.
func clip(s string, n int) string {
	return kit.Clip(s, n, fmt.Sprintf("\n… %s more in result.json", textfmt.Bytes(len(s)-n)))
}

// cut truncates a text to one line of a list.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = strings.ToValidUTF8(s[:n], "")
	return s[:max(strings.LastIndexByte(s, ' '), n/2)] + " …"
}

// rankList formats ranks as ranges: "0–7, 9".
func rankList(ranks []int) string {
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		if j == i {
			parts = append(parts, fmt.Sprint(ranks[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d–%d", ranks[i], ranks[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
