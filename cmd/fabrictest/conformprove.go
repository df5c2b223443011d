package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/suites"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report/conform"
)

// caseDefect is a defect as cases name it, and what is tried on a device with it.
type caseDefect struct {
	spec  string // NAME, or NAME=NUMBER
	tried []question
}

// defects are the defects of a subject to be tried, in the order of its defects: those
// that cases name, with the cases that name them; with --matrix all, with all cases.
func (j *judgement) defects(s *subject) (all []caseDefect) {
	for _, defect := range s.provider.Defects {
		if j.withoutMutants && defect.Mutant {
			continue
		}
		specs := specsOf(defect.Name, s.asked)
		if len(specs) == 0 && j.opts.matrix && s.provider.CheckDefect(defect.Name) == nil {
			specs = []string{defect.Name}
		}
		for _, spec := range specs {
			m := caseDefect{spec, s.asked}
			if !j.opts.matrix {
				m.tried = naming(spec, s.asked)
			}
			all = append(all, m)
		}
	}
	return all
}

// plainDefect is the name of a defect without its number.
func plainDefect(spec string) string {
	name, _, _ := strings.Cut(spec, "=")
	return name
}

// specsOf are the ways in which cases name a defect: one that takes a number may be
// named with several.
func specsOf(defect string, asked []question) (specs []string) {
	for _, q := range asked {
		for _, m := range q.Defects {
			if plainDefect(m) == plainDefect(defect) && !slices.Contains(specs, m) {
				specs = append(specs, m)
			}
		}
	}
	return specs
}

// naming are the cases that are to catch a defect.
func naming(spec string, asked []question) (some []question) {
	for _, q := range asked {
		if slices.Contains(q.Defects, spec) {
			some = append(some, q)
		}
	}
	return some
}

// prove judges cases on devices with defects, and adds to the device who notices
// which.
func (j *judgement) prove(ctx context.Context, lab conformance.Lab, s *subject, d *conform.Device) error {
	at := make(map[string]*conform.Result, len(d.Results))
	for i := range d.Results {
		at[d.Results[i].ID] = &d.Results[i]
	}
	noticed := make(map[string]*conform.DefectCheck, len(s.provider.Defects))
	for _, q := range s.provider.Defects {
		if j.withoutMutants && q.Mutant {
			continue
		}
		d.DefectChecks = append(d.DefectChecks, conform.DefectCheck{Defect: plainDefect(q.Name), Imitates: q.Imitates, Does: q.Does})
	}
	for i := range d.DefectChecks {
		noticed[d.DefectChecks[i].Defect] = &d.DefectChecks[i]
	}
	for _, m := range j.defects(s) {
		results, err := j.run(ctx, lab, s, m.tried, []string{m.spec}, func(s *subject, q question, res *conformance.Result) conform.Result {
			j.show.End(j.label(s, q.ID, res.Defects))
			return j.result(s, q, res)
		})
		if err != nil {
			return err
		}
		to := noticed[plainDefect(m.spec)]
		for i := range results {
			r, sound := &results[i], at[results[i].ID]
			to.Tried++
			// On a sound device that it fails on, it notices nothing.
			if r.Verdict == conform.Fail && sound.Verdict == conform.Pass {
				to.Caught = append(to.Caught, r.ID)
			}
			if slices.Contains(caseOf(m.tried, r.ID).Defects, m.spec) {
				to.Expects = append(to.Expects, r.ID)
				sound.Defective = append(sound.Defective, conform.Defective{Defect: m.spec, Verdict: r.Verdict, Reason: r.Reason})
			}
		}
		slices.Sort(to.Caught)
	}
	return nil
}

func caseOf(asked []question, id string) *conformance.Case {
	return asked[slices.IndexFunc(asked, func(q question) bool { return q.ID == id })].Case
}

// complain lists what is wrong with the cases: those that fail on a sound device, or
// pass on one with a defect that they are to catch, or name one that no device has;
// and defects that no case notices.
func (j *judgement) complain(run *conform.Run) {
	for i := range run.Devices {
		d := &run.Devices[i]
		for k := range d.Results {
			run.Faults = append(run.Faults, unproven(d, &d.Results[k])...)
		}
	}
	for _, s := range j.subjects {
		for _, q := range s.asked {
			run.Faults = append(run.Faults, unknownDefects(q.Case)...)
		}
	}
	run.Faults = once(run.Faults)
	if j.opts.part() {
		return // what is left out may notice what nobody else does
	}
	for i, s := range j.subjects {
		run.Faults = append(run.Faults, j.uncaught(s, &run.Devices[i])...)
	}
}

// once keeps the first of faults that are alike: a case may be judged on several
// devices.
func once(all []conform.Fault) (some []conform.Fault) {
	for _, f := range all {
		if !slices.Contains(some, f) {
			some = append(some, f)
		}
	}
	return some
}

func unproven(d *conform.Device, r *conform.Result) (faults []conform.Fault) {
	if r.Verdict == conform.Unsupported || r.Verdict == conform.Deviates {
		return nil // it has nothing to prove here
	}
	if r.Verdict != conform.Pass {
		faults = append(faults, conform.Fault{
			Kind: conform.Unsound, Device: d.Name, Case: r.ID,
			What: fmt.Sprintf("%s: %s on the sound device: %s", r.ID, r.Verdict, r.Reason),
		})
	}
	for _, f := range r.Defective {
		if f.Verdict == conform.Fail {
			continue
		}
		what := fmt.Sprintf("%s: %s with %s, which it is to catch", r.ID, f.Verdict, f.Defect)
		if f.Reason != "" {
			what += ": " + f.Reason
		}
		faults = append(faults, conform.Fault{Kind: conform.Unproven, Device: d.Name, Case: r.ID, Defect: f.Defect, What: what})
	}
	return faults
}

func unknownDefects(c *conformance.Case) (faults []conform.Fault) {
	for _, q := range c.Defects {
		if err := nics.CheckDefect(q); err != nil {
			faults = append(faults, conform.Fault{
				Kind: conform.UnknownDefect, Case: c.ID, Defect: q, What: fmt.Sprintf("%s is to catch %s, which no device can have", c.ID, q),
			})
		}
	}
	return faults
}

// uncaught are the defects of a device that nobody notices. One that only cases are
// to notice which were not run here is excused.
func (j *judgement) uncaught(s *subject, d *conform.Device) (faults []conform.Fault) {
	left := j.leftOut(s)
	for i := range d.DefectChecks {
		m := &d.DefectChecks[i]
		switch {
		case len(m.Caught) > 0:
		case len(m.Expects) == 0 && len(left[m.Defect]) > 0:
			m.Excused = fmt.Sprintf("%s is to notice it, which runs only with --dangerous", strings.Join(left[m.Defect], ", "))
		case len(m.Expects) > 0 && allUnsupported(d, m.Expects):
			m.Excused = fmt.Sprintf("%s is to notice it, which this bench cannot ask", strings.Join(m.Expects, ", "))
		default:
			what := fmt.Sprintf("no case notices %s: %s", m.Defect, m.Does)
			if m.Tried == 0 {
				what = fmt.Sprintf("no case names %s among its defects (--matrix tells who would notice it): %s", m.Defect, m.Does)
			}
			faults = append(faults, conform.Fault{Kind: conform.Uncaught, Device: d.Name, Defect: m.Defect, What: what})
		}
		if m.Excused != "" {
			j.show.Note(fmt.Sprintf("%s: nobody notices %s: %s", d.Name, m.Defect, m.Excused))
		}
	}
	return faults
}

// allUnsupported reports whether nothing came of any of the cases.
func allUnsupported(d *conform.Device, ids []string) bool {
	return !slices.ContainsFunc(d.Results, func(r conform.Result) bool {
		return slices.Contains(ids, r.ID) && r.Verdict != conform.Unsupported
	})
}

// leftOut are the dangerous cases that were not run, by the defects that they are to
// catch.
func (j *judgement) leftOut(s *subject) map[string][]string {
	left := make(map[string][]string)
	if j.opts.IncludeDangerous {
		return left
	}
	for _, suite := range suites.Of(suites.ProtocolOf(s.provider.Name)) {
		for i := range suite.Cases {
			if c := &suite.Cases[i]; c.Dangerous() {
				for _, m := range c.Defects {
					left[plainDefect(m)] = append(left[plainDefect(m)], c.ID)
				}
			}
		}
	}
	return left
}
