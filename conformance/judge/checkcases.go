package judge

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/report/conform"
)

// caseDefect is a defect as cases name it, and the cases to run on a device with it.
type caseDefect struct {
	spec  string // NAME, or NAME=NUMBER
	tried []Case
}

// TrialDefects returns the defects with which CheckCases runs cases on a device.
func (j *Judge) TrialDefects(d *Device) (specs []string) {
	for _, m := range j.defects(d) {
		specs = append(specs, m.spec)
	}
	return specs
}

// defects returns the defects to be tried on a device: those that cases name, with these
// cases; with Matrix all defects, with all cases.
func (j *Judge) defects(d *Device) (all []caseDefect) {
	for _, defect := range d.Known {
		if j.WithoutMutants && defect.Mutant {
			continue
		}
		specs := specsOf(defect.Name, d.Cases)
		if len(specs) == 0 && j.Matrix && !defect.NeedsNumber {
			specs = []string{defect.Name}
		}
		for _, spec := range specs {
			m := caseDefect{spec, d.Cases}
			if !j.Matrix {
				m.tried = slices.DeleteFunc(slices.Clone(d.Cases), func(q Case) bool { return !slices.Contains(q.Defects, spec) })
			}
			all = append(all, m)
		}
	}
	return all
}

// DefectName returns the name of a defect without its number.
func DefectName(spec string) string {
	name, _, _ := strings.Cut(spec, "=")
	return name
}

// specsOf returns how cases name a defect: one with a number may have several.
func specsOf(defect string, cases []Case) (specs []string) {
	for _, q := range cases {
		for _, m := range q.Defects {
			if DefectName(m) == DefectName(defect) && !slices.Contains(specs, m) {
				specs = append(specs, m)
			}
		}
	}
	return specs
}

// checkCases runs cases on devices with defects, and adds to the report which cases detect
// each.
func (j *Judge) checkCases(ctx context.Context, lab conformance.Lab, d *Device, r *conform.Device) error {
	at := make(map[string]*conform.Result, len(r.Results))
	for i := range r.Results {
		at[r.Results[i].ID] = &r.Results[i]
	}
	detected := make(map[string]*conform.DefectCheck, len(d.Known))
	for _, q := range d.Known {
		if j.WithoutMutants && q.Mutant {
			continue
		}
		r.DefectChecks = append(r.DefectChecks, conform.DefectCheck{Defect: DefectName(q.Name), Imitates: q.Imitates, Does: q.Does})
	}
	for i := range r.DefectChecks {
		detected[r.DefectChecks[i].Defect] = &r.DefectChecks[i]
	}
	for _, m := range j.defects(d) {
		results, err := j.run(ctx, lab, d, trial{m.tried, []string{m.spec}}, func(d *Device, q Case, res *conformance.Result) conform.Result {
			j.Show.End(j.label(d, q.ID, res.Defects))
			return j.result(d, q, res)
		})
		if err != nil {
			return err
		}
		to := detected[DefectName(m.spec)]
		for i := range results {
			defective, sound := &results[i], at[results[i].ID]
			to.Tried++
			// A case that fails without the defect, too, does not detect it.
			if defective.Verdict == conform.Fail && sound.Verdict == conform.Pass {
				to.Caught = append(to.Caught, defective.ID)
			}
			if slices.Contains(caseOf(m.tried, defective.ID).Defects, m.spec) {
				to.Expects = append(to.Expects, defective.ID)
				sound.Defective = append(sound.Defective, conform.Defective{Defect: m.spec, Verdict: defective.Verdict, Reason: defective.Reason})
			}
		}
		slices.Sort(to.Caught)
	}
	return nil
}

func caseOf(cases []Case, id string) *conformance.Case {
	return cases[slices.IndexFunc(cases, func(q Case) bool { return q.ID == id })].Case
}

// addFaults adds the faults of the cases to the run: cases that fail without a defect, pass
// with a defect that they must detect, or name a defect that no device can have; and
// defects that no case detects.
func (j *Judge) addFaults(run *conform.Run) {
	for i := range run.Devices {
		d := &run.Devices[i]
		for k := range d.Results {
			run.Faults = append(run.Faults, unproven(d, &d.Results[k])...)
		}
	}
	for _, d := range j.Devices {
		for _, q := range d.Cases {
			run.Faults = append(run.Faults, j.unknownDefects(q.Case)...)
		}
	}
	run.Faults = once(run.Faults)
	if j.Part {
		return // a case that was left out may detect the defect
	}
	for i, d := range j.Devices {
		run.Faults = append(run.Faults, j.uncaught(d, &run.Devices[i])...)
	}
}

// once removes equal faults: a case may run on several devices.
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
		return nil // it need not detect anything
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

func (j *Judge) unknownDefects(c *conformance.Case) (faults []conform.Fault) {
	for _, q := range c.Defects {
		if err := j.CheckDefect(q); err != nil {
			faults = append(faults, conform.Fault{
				Kind: conform.UnknownDefect, Case: c.ID, Defect: q, What: fmt.Sprintf("%s is to catch %s, which no device can have", c.ID, q),
			})
		}
	}
	return faults
}

// uncaught returns the defects of a device that no case detects. A defect that only cases
// must detect which were not run is excused.
func (j *Judge) uncaught(d *Device, r *conform.Device) (faults []conform.Fault) {
	left := j.leftOut(d)
	for i := range r.DefectChecks {
		m := &r.DefectChecks[i]
		switch {
		case len(m.Caught) > 0:
		case len(m.Expects) == 0 && len(left[m.Defect]) > 0:
			m.Excused = fmt.Sprintf("%s is to notice it, which runs only with --dangerous", strings.Join(left[m.Defect], ", "))
		case len(m.Expects) > 0 && allUnsupported(r, m.Expects):
			m.Excused = fmt.Sprintf("%s is to notice it, which this bench cannot ask", strings.Join(m.Expects, ", "))
		default:
			what := fmt.Sprintf("no case notices %s: %s", m.Defect, m.Does)
			if m.Tried == 0 {
				what = fmt.Sprintf("no case names %s among its defects (--matrix tells who would notice it): %s", m.Defect, m.Does)
			}
			faults = append(faults, conform.Fault{Kind: conform.Uncaught, Device: r.Name, Defect: m.Defect, What: what})
		}
		if m.Excused != "" {
			j.Show.Note(fmt.Sprintf("%s: nobody notices %s: %s", r.Name, m.Defect, m.Excused))
		}
	}
	return faults
}

// allUnsupported reports whether all of the cases are unsupported.
func allUnsupported(d *conform.Device, ids []string) bool {
	return !slices.ContainsFunc(d.Results, func(r conform.Result) bool {
		return slices.Contains(ids, r.ID) && r.Verdict != conform.Unsupported
	})
}

// leftOut returns the dangerous cases that were not run, by the defects that they must
// detect.
func (j *Judge) leftOut(d *Device) map[string][]string {
	left := make(map[string][]string)
	if j.Dangerous {
		return left
	}
	for _, c := range casesOf(SuitesOf(d.Protocol)) {
		if c.Dangerous() {
			for _, m := range c.Defects {
				left[DefectName(m)] = append(left[DefectName(m)], c.ID)
			}
		}
	}
	return left
}
