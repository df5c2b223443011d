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
	spec  string // NAME, or NAME=VALUE
	cases []Case
}

// TrialDefects returns the specs, NAME or NAME=VALUE, of the defects (deliberate faults of an
// emulated device) with which CheckCases runs the cases of a device.
func (j *Judge) TrialDefects(d *Device) (specs []string) {
	for _, defect := range j.defectsToTry(d) {
		specs = append(specs, defect.spec)
	}
	return specs
}

// defectsToTry returns the defects (deliberate faults) to give to an emulated device, each with the
// cases to run: every defect that a case names, with the cases that name it. With j.Matrix it
// returns every known defect with all cases, except a defect that needs a number if no case gives
// one. j.WithoutMutants omits mutants, the defects that are changes of the engine's source.
func (j *Judge) defectsToTry(d *Device) (all []caseDefect) {
	for _, defect := range d.Known {
		if j.WithoutMutants && defect.Mutant {
			continue
		}
		specs := specsOf(defect.Name, d.Cases)
		if len(specs) == 0 && j.Matrix && !defect.NeedsNumber {
			specs = []string{defect.Name}
		}
		for _, spec := range specs {
			toTry := caseDefect{spec, d.Cases}
			if !j.Matrix {
				toTry.cases = slices.DeleteFunc(slices.Clone(d.Cases), func(c Case) bool { return !slices.Contains(c.Defects, spec) })
			}
			all = append(all, toTry)
		}
	}
	return all
}

// DefectName returns the name of a defect from its spec, NAME or NAME=VALUE.
func DefectName(spec string) string {
	name, _, _ := strings.Cut(spec, "=")
	return name
}

// specsOf returns the distinct specs, NAME or NAME=VALUE, with which cases name a defect in
// their Defects. A value in defect itself is ignored.
func specsOf(defect string, cases []Case) (specs []string) {
	for _, c := range cases {
		for _, spec := range c.Defects {
			if DefectName(spec) == DefectName(defect) && !slices.Contains(specs, spec) {
				specs = append(specs, spec)
			}
		}
	}
	return specs
}

// checkCases runs the cases of a device again with each defect (deliberate fault) of defectsToTry.
// r is the report with the results without defects. checkCases adds to it which cases detect the
// defect (Caught): those that pass without it and fail with it. If a case names the defect
// (Expects), checkCases adds the verdict with the defect to the result of the case (Defective).
func (j *Judge) checkCases(ctx context.Context, lab conformance.Lab, d *Device, r *conform.Device) error {
	resultsWithout := make(map[string]*conform.Result, len(r.Results)) // without defects, by case
	for i := range r.Results {
		resultsWithout[r.Results[i].ID] = &r.Results[i]
	}
	checks := make(map[string]*conform.DefectCheck, len(d.Known)) // by defect
	for _, defect := range d.Known {
		if j.WithoutMutants && defect.Mutant {
			continue
		}
		r.DefectChecks = append(r.DefectChecks, conform.DefectCheck{
			Defect: DefectName(defect.Name), Imitates: defect.Imitates, Does: defect.Does,
		})
	}
	for i := range r.DefectChecks {
		checks[r.DefectChecks[i].Defect] = &r.DefectChecks[i]
	}
	for _, defect := range j.defectsToTry(d) {
		results, err := j.run(ctx, lab, d, trial{defect.cases, []string{defect.spec}}, func(d *Device, c Case, res *conformance.Result) conform.Result {
			j.Show.End(j.label(d, c.ID, res.Defects))
			return j.result(d, c, res)
		})
		if err != nil {
			return err
		}
		check := checks[DefectName(defect.spec)]
		for i := range results {
			defective, without := &results[i], resultsWithout[results[i].ID]
			check.Tried++
			// A case that fails without the defect, too, does not detect it.
			if defective.Verdict == conform.Fail && without.Verdict == conform.Pass {
				check.Caught = append(check.Caught, defective.ID)
			}
			if slices.ContainsFunc(defect.cases, func(c Case) bool { return c.ID == defective.ID && slices.Contains(c.Defects, defect.spec) }) {
				check.Expects = append(check.Expects, defective.ID)
				without.Defective = append(without.Defective, conform.Defective{Defect: defect.spec, Verdict: defective.Verdict, Reason: defective.Reason})
			}
		}
		slices.Sort(check.Caught)
	}
	return nil
}

// addFaults adds faults of cases to the run: cases that fail without a defect, pass with one that
// they must detect, or name a defect that no device can have; and defects that no case detects.
func (j *Judge) addFaults(run *conform.Run) {
	var faults []conform.Fault
	for i := range run.Devices {
		d := &run.Devices[i]
		for k := range d.Results {
			faults = append(faults, caseFaults(d, &d.Results[k])...)
		}
	}
	for _, d := range j.Devices {
		for _, c := range d.Cases {
			faults = append(faults, j.unknownDefects(c.Case)...)
		}
	}
	for _, f := range faults { // a case may run on several devices
		if !slices.Contains(run.Faults, f) {
			run.Faults = append(run.Faults, f)
		}
	}
	if j.Filtered {
		return // a case that was left out may detect the defect
	}
	for i := range j.Devices {
		run.Faults = append(run.Faults, j.uncaughtDefects(&run.Devices[i])...)
	}
}

// caseFaults returns the faults of a case: it does not pass on the device without defects, or does
// not fail with a defect that it should detect. Cases that were not judged and known deviations have none.
func caseFaults(d *conform.Device, r *conform.Result) (faults []conform.Fault) {
	if !r.Verdict.Judged() || r.Verdict == conform.Deviates {
		return nil
	}
	if r.Verdict != conform.Pass {
		faults = append(faults, conform.Fault{
			Kind: conform.Unsound, Device: d.Name, Case: r.ID,
			What: fmt.Sprintf("%s: %s on the device without defects: %s", r.ID, r.Verdict, r.Reason),
		})
	}
	for _, f := range r.Defective {
		if f.Verdict == conform.Fail {
			continue
		}
		what := fmt.Sprintf("%s: %s with %s, which the case should detect", r.ID, f.Verdict, f.Defect)
		if f.Reason != "" {
			what += ": " + f.Reason
		}
		faults = append(faults, conform.Fault{Kind: conform.Unproven, Device: d.Name, Case: r.ID, Defect: f.Defect, What: what})
	}
	return faults
}

// unknownDefects returns a fault for each defect that a case names and no device can have.
func (j *Judge) unknownDefects(c *conformance.Case) (faults []conform.Fault) {
	for _, spec := range c.Defects {
		if err := j.CheckDefect(spec); err != nil {
			faults = append(faults, conform.Fault{
				Kind: conform.UnknownDefect, Case: c.ID, Defect: spec, What: fmt.Sprintf("%s should detect %s, which no device can have", c.ID, spec),
			})
		}
	}
	return faults
}

// uncaughtDefects returns a fault for each defect of a device that no case detects. If no case
// that should detect the defect was judged, it prints a note instead (Excused).
func (j *Judge) uncaughtDefects(r *conform.Device) (faults []conform.Fault) {
	for i := range r.DefectChecks {
		check := &r.DefectChecks[i]
		switch {
		case len(check.Caught) > 0:
		case len(check.Expects) > 0 && noneJudged(r, check.Expects):
			check.Excused = fmt.Sprintf("%s should detect it, but was not judged on this bench", strings.Join(check.Expects, ", "))
		default:
			what := fmt.Sprintf("no case detects %s: %s", check.Defect, check.Does)
			if check.Tried == 0 {
				what = fmt.Sprintf("no case names %s among its defects (--matrix tells which cases would detect it): %s", check.Defect, check.Does)
			}
			faults = append(faults, conform.Fault{Kind: conform.Uncaught, Device: r.Name, Defect: check.Defect, What: what})
		}
		if check.Excused != "" {
			j.Show.Note(fmt.Sprintf("%s: no case detects %s: %s", r.Name, check.Defect, check.Excused))
		}
	}
	return faults
}

// noneJudged reports whether none of the cases was judged.
func noneJudged(d *conform.Device, ids []string) bool {
	return !slices.ContainsFunc(d.Results, func(r conform.Result) bool {
		return slices.Contains(ids, r.ID) && r.Verdict.Judged()
	})
}
