package nics

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestProfileDefectsExist(t *testing.T) {
	for _, p := range Profiles() {
		of := must.Get(Find(p.Provider))(t)
		for i, q := range p.Defects {
			if err := of.CheckDefect(q); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
			if slices.Contains(p.Defects[:i], q) {
				t.Errorf("%s has %s twice", p.Name, q)
			}
		}
		if _, err := of.NewOpener(Setup{Defects: p.Defects}); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if lost := p.Restrictions.MissingCaps &^ of.Caps; lost != 0 {
			t.Errorf("%s removes capabilities that the provider lacks: %#x", p.Name, lost)
		}
		if found, err := FindProfile(p.Name); err != nil || found.Title != p.Title {
			t.Errorf("%+v, %v", found, err)
		}
	}
	if _, err := FindProfile("rxe-7"); err == nil {
		t.Error("FindProfile finds rxe-7")
	}
}

// device reports some capabilities.
type device struct{ verbs.Context }

func (device) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{Caps: verbs.CapRC | verbs.CapXRC | verbs.CapCredits, MaxQP: 7}, nil
}

func TestRestrictionsRemoveCaps(t *testing.T) {
	attr, err := Restrictions{MissingCaps: verbs.CapXRC | verbs.CapUD}.Apply(device{}).QueryDevice()
	if err != nil || attr.Caps != verbs.CapRC|verbs.CapCredits || attr.MaxQP != 7 {
		t.Errorf("%+v, %v", attr, err)
	}
	if d := (Restrictions{}).Apply(device{}); d != (device{}) {
		t.Errorf("a device without restrictions is wrapped: %T", d)
	}
}

// knownDefects is the number of defects R1, R2, ... in docs/spec/defects.md.
const knownDefects = 48

// The other known defects were fixed before (R1 to R8, R11, R12, R14, R48), or
// belong to other devices (R10, R13, R15).
func TestRxeProfilesHaveKnownDefects(t *testing.T) {
	only := map[int]string{17: "rxe-6.12", 35: "rxe-6.12", 43: "rxe-6.1"}
	for _, profile := range []string{"rxe-6.12", "rxe-6.1"} {
		p := must.Get(FindProfile(profile))(t)
		for n := 1; n <= knownDefects; n++ {
			want := n == 9 || n == 16 || n >= 18 && n < knownDefects
			if v, one := only[n]; one {
				want = v == profile
			}
			defect := fmt.Sprintf("R%d", n)
			if of := imitating(t, p, defect); len(of) == 0 {
				t.Errorf("no defect imitates %s", defect)
			} else if has := slices.ContainsFunc(of, func(q string) bool { return slices.Contains(p.Defects, q) }); has != want {
				t.Errorf("%s has one of %q: %v, want %v", profile, of, has, want)
			}
		}
	}
}

// A defect that imitates a kernel is in its profile, and no other defect is.
func TestProfilesMatchDocumentedKernels(t *testing.T) {
	exceptions := map[string]string{
		"BusyCloseIsIdle":   "it is coarser than siw",
		"NeverRaisesCRC":    "of a siw that wants CRCs",
		"RefusesPlainReply": "of a siw that wants CRCs",

		"InvalidateAnything": "it applies to RoCE as well",
		"cm.IgnoreCommEst":   "it follows from R41, of the NIC",
	}
	for _, p := range Profiles() {
		kernel, version, _ := strings.Cut(p.Name, "-")
		imitations := slices.Concat(imitating(t, &p, kernel), imitating(t, &p, kernel+" "+version))
		for n := 1; n <= knownDefects && kernel == "rxe"; n++ {
			for _, q := range imitating(t, &p, fmt.Sprintf("R%d", n)) {
				if slices.Contains(p.Defects, q) { // the test above checks whether it must be
					imitations = append(imitations, q)
				}
			}
		}
		for _, q := range imitations {
			if !slices.Contains(p.Defects, q) && exceptions[q] == "" {
				t.Errorf("%s has no %s, which is documented to imitate it", p.Name, q)
			}
		}
		for _, q := range p.Defects {
			if !slices.Contains(imitations, q) && exceptions[q] == "" {
				t.Errorf("%s has %s, which is not documented to imitate %s", p.Name, q, kernel)
			}
		}
	}
}

// imitating lists the defects of a profile's provider with this text in Imitates.
func imitating(t *testing.T, p *Profile, what string) (names []string) {
	t.Helper()
	of := must.Get(Find(p.Provider))(t)
	for _, q := range of.AllDefects() {
		if slices.Contains(strings.Split(q.Imitates, ", "), what) {
			names = append(names, q.Name)
		}
	}
	return names
}

// The documentation has a line for every defect of siw that a defect imitates, and
// names no unknown defect.
func TestDefectsOfSiwAreListed(t *testing.T) {
	const doc = "../../docs/softiwarp.md"
	text := must.Get(os.ReadFile(doc))(t)
	_, table, ok := strings.Cut(string(text), "## Defects of siw")
	if !ok {
		t.Fatalf("%s has no list of siw's defects", doc)
	}
	table, _, _ = strings.Cut(table, "\n## ")
	_, rows, ok := strings.Cut(table, "|---|---|\n")
	if !ok {
		t.Fatalf("%s has no table of siw's defects", doc)
	}
	siw := must.Get(Find("softiwarp"))(t)
	listed := map[string]bool{}
	for line := range strings.Lines(rows) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			break // after the table
		}
		for name := range strings.SplitSeq(cells[2], ",") {
			listed[strings.Trim(name, " `")] = true
		}
	}
	for _, q := range siw.AllDefects() {
		if strings.HasPrefix(q.Imitates, "siw") && !listed[q.Name] {
			t.Errorf("%s does not list %s", doc, q.Name)
		}
		delete(listed, q.Name)
	}
	for name := range listed {
		t.Errorf("%s lists %q, which is no defect", doc, name)
	}
}
