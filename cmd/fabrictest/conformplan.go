package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/suites"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

// subject is a device that is to be judged, and by what.
type subject struct {
	provider *nics.Provider
	profile  *nics.Profile // that it behaves like; nil for itself
	defects  []string      // all that it has, the profile's too
	asked    []question
	// deviations are known, by case, with their reasons.
	deviations map[string]conformance.Deviation
}

// question is a case and the suite that it is of.
type question struct {
	suite *conformance.Suite
	*conformance.Case
}

// claims are what the subject has less of than others of its provider.
func (s *subject) claims() nics.Restrictions {
	if s.profile == nil {
		return nics.Restrictions{}
	}
	return s.profile.Restrictions
}

// plan works out what is to be judged, or says what is wrong with how it was asked.
func (o *conformOptions) plan() (*judgement, error) {
	seed, err := parseSeed(o.seed, 1)
	if err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	subjects, err := o.subjects()
	if err != nil {
		return nil, err
	}
	if err := o.unknown(subjects); err != nil {
		return nil, err
	}
	j := &judgement{opts: o, seed: seed}
	for _, s := range subjects {
		for _, suite := range suites.Of(suites.ProtocolOf(s.provider.Name)) {
			for _, c := range o.Select(suite) {
				s.asked = append(s.asked, question{suite, c})
			}
		}
		if len(s.asked) > 0 {
			j.subjects = append(j.subjects, s)
		}
	}
	if len(j.subjects) == 0 {
		return nil, o.nothing(subjects)
	}
	if o.deviations != "" {
		if len(j.subjects) > 1 {
			return nil, cmdline.Errorf("--deviations: a file is about one device: name it with --device")
		}
		j.subjects[0].deviations, err = readDeviations(o.deviations, o.on, j.subjects[0].provider)
		return j, err
	}
	for _, s := range j.subjects {
		if s.deviations, err = o.knownOf(s); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// check refuses what makes no sense by itself.
func (o *conformOptions) check() error {
	o.Level = conformance.Level(strings.ToUpper(o.level))
	switch {
	case o.level != "" && !slices.Contains([]conformance.Level{conformance.Must, conformance.Should, conformance.May}, o.Level):
		return cmdline.Errorf("--level %s: give must, should or may", o.level)
	case o.on != string(scenarios.Sim) && o.on != string(scenarios.NetNS):
		return cmdline.Errorf("--on %s: give sim or netns", o.on)
	case o.given("workers") && o.workers < 1:
		return cmdline.Errorf("--workers %d: give a number from 1 on", o.workers)
	case o.given("schedules") && o.schedules < 1:
		return cmdline.Errorf("--schedules %d: give a number from 1 on", o.schedules)
	case o.matrix && !o.checkCases:
		return cmdline.Errorf("--matrix: it is about --check-cases: give both")
	case o.checkCases && (len(o.defects) > 0 || o.profile != ""):
		return cmdline.Errorf("--check-cases: the cases are judged on devices that have one defect at a time: leave out --defect and --as")
	case o.checkCases && o.deviations != "":
		return cmdline.Errorf("--check-cases: the cases are judged on a device that has no known deviations: leave out --deviations")
	}
	return nil
}

// subjects are the devices that are asked for; without --device those that can have
// the defects which are.
func (o *conformOptions) subjects() (all []*subject, err error) {
	var profile *nics.Profile
	if o.profile != "" {
		if profile, err = nics.FindProfile(o.profile); err != nil {
			return nil, cmdline.Errorf("--as: %w%s", err, cmdline.Guess(o.profile, nics.ProfileNames()))
		}
	}
	names := o.devices
	switch {
	case len(names) == 0 && profile != nil:
		names = []string{profile.Provider}
	case len(names) == 0:
		names = nics.Names()
	}
	var mistake error
	for _, name := range names {
		p, err := nics.Find(name)
		if err != nil {
			return nil, cmdline.Errorf("--device: %w%s", err, cmdline.Guess(name, nics.Names()))
		}
		if slices.ContainsFunc(all, func(s *subject) bool { return s.provider.Name == p.Name }) {
			continue
		}
		s := &subject{provider: p, profile: profile, defects: o.defects}
		if profile != nil {
			if profile.Provider != p.Name {
				return nil, cmdline.Errorf("--as %s: that is a %s, and --device says %s", profile.Name, profile.Provider, p.Name)
			}
			s.defects = slices.Concat(profile.Defects, o.defects)
		}
		if err := checkDefects(p, s.defects); err != nil {
			mistake = err
			var foreign *nics.ForeignDefectError
			if len(o.devices) > 0 || !errors.As(err, &foreign) {
				return nil, err
			}
			continue
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, mistake
	}
	return all, nil
}

func checkDefects(p *nics.Provider, defects []string) error {
	for _, q := range defects {
		if err := p.CheckDefect(q); err != nil {
			return defectMistake(err)
		}
	}
	return nil
}

// unknown says which of the cases and labels that were named there are not.
func (o *conformOptions) unknown(subjects []*subject) error {
	all := make([]*conformance.Suite, 0, 2*len(subjects))
	for _, s := range subjects {
		all = append(all, suites.Of(suites.ProtocolOf(s.provider.Name))...)
	}
	for _, named := range []struct {
		flag   string
		labels []string
	}{{"--label", o.Labels}, {"--without", o.ExcludeLabels}} {
		for _, l := range named.labels {
			if known := labelsOf(all); !slices.Contains(known, l) {
				return cmdline.Errorf("%s %s: no case has it; %s", named.flag, l, cmdline.DidYouMean(l, known, "fabrictest conform list --json"))
			}
		}
	}
	var none *conformance.NoCaseError
	if err := o.CheckPatterns(all...); !errors.As(err, &none) {
		return err
	}
	if err := o.CheckPatterns(suites.All()...); err == nil {
		return cmdline.Errorf("%s is no case for %s: ask for devices that it is for, or for none by name", none.Pattern, strings.Join(deviceNames(subjects), " or "))
	}
	return noSuchCase(none.Pattern)
}

func deviceNames(subjects []*subject) (names []string) {
	for _, s := range subjects {
		names = append(names, s.provider.Name)
	}
	return names
}

// noSuchCase says that there is no such case, and what may have been meant.
func noSuchCase(pattern string) error {
	return cmdline.Errorf("no case is called %q; %s", pattern, cmdline.DidYouMean(pattern, append(caseAreas(), caseIDs()...), "fabrictest conform list"))
}

// nothing says why no case is left.
func (o *conformOptions) nothing(subjects []*subject) error {
	risky := o.Filter
	risky.IncludeDangerous = true
	for _, s := range subjects {
		for _, suite := range suites.Of(suites.ProtocolOf(s.provider.Name)) {
			if n := len(risky.Select(suite)); n > 0 {
				return cmdline.Errorf("what is asked for can crash or wedge a real device: add --dangerous")
			}
		}
	}
	return cmdline.Errorf("no case has all that is asked for by name, --level, --label and --without: 'fabrictest conform list' shows all")
}

// part reports whether some of the cases are left out.
func (o *conformOptions) part() bool {
	return len(o.IDs) > 0 || o.level != "" || len(o.Labels) > 0 || len(o.ExcludeLabels) > 0
}

// command is the command line that repeats the run.
func (o *conformOptions) command(seed uint64) string {
	words := []string{o.program + " conform"}
	for _, id := range o.IDs {
		words = append(words, cmdline.Quote(id))
	}
	for _, d := range o.devices {
		words = append(words, "--device "+d)
	}
	if o.level != "" {
		words = append(words, "--level "+strings.ToLower(o.level))
	}
	for _, l := range o.Labels {
		words = append(words, "--label "+cmdline.Quote(l))
	}
	for _, l := range o.ExcludeLabels {
		words = append(words, "--without "+cmdline.Quote(l))
	}
	words = append(words, o.conditions(seed))
	if o.checkCases {
		words = append(words, "--check-cases")
	}
	if o.matrix {
		words = append(words, "--matrix")
	}
	return strings.Join(words, " ")
}

// replay is the command line that repeats one case.
func (o *conformOptions) replay(s *subject, id string, seed uint64) string {
	return fmt.Sprintf("%s conform %s --device %s %s", o.program, id, s.provider.Name, o.conditions(seed))
}

// conditions are under which cases were run.
func (o *conformOptions) conditions(seed uint64) string {
	words := []string{fmt.Sprintf("--on %s --seed %d", o.on, seed)}
	if o.profile != "" {
		words = append(words, "--as "+o.profile)
	}
	for _, q := range o.defects {
		words = append(words, "--defect "+cmdline.Quote(q))
	}
	if o.IncludeDangerous {
		words = append(words, "--dangerous")
	}
	if o.schedules > 0 {
		words = append(words, fmt.Sprintf("--schedules %d", o.schedules))
	}
	if o.deviations != "" {
		words = append(words, "--deviations "+cmdline.Quote(o.deviations))
	}
	return strings.Join(words, " ")
}

// caseIDs lists those of all suites.
func caseIDs() (ids []string) {
	for _, s := range suites.All() {
		for i := range s.Cases {
			ids = append(ids, s.Cases[i].ID)
		}
	}
	return ids
}

// caseAreas lists the beginnings that IDs have in common.
func caseAreas() (areas []string) {
	for _, id := range caseIDs() {
		parts := strings.SplitN(id, "/", 3)
		areas = append(areas, parts[0], parts[0]+"/"+parts[1])
	}
	slices.Sort(areas)
	return slices.Compact(areas)
}

// labelsOf lists the labels of suites, each once.
func labelsOf(all []*conformance.Suite) (labels []string) {
	for _, s := range all {
		for i := range s.Cases {
			labels = append(labels, s.Cases[i].AllLabels()...)
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}
