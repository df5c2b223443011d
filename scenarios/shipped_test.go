package scenarios

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

func shippedScenarios(t *testing.T) []*Scenario {
	t.Helper()
	all := must.Get(Builtin())(t)
	return all
}

func TestShippedScenariosAreSorted(t *testing.T) {
	all := shippedScenarios(t)
	files, err := fs.Glob(Files(), "*.yaml")
	papers, err2 := fs.Glob(Files(), "paper/*.yaml")
	if err := errors.Join(err, err2); err != nil || len(files)+len(papers) != len(all) {
		t.Fatalf("%d scenarios of %d files, %v", len(all), len(files)+len(papers), err)
	}
	if !slices.IsSortedFunc(all, func(a, b *Scenario) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the scenarios are not sorted by name")
	}
}

// Each file has a description, tags and a schema line, and expectations that can fail.
func TestShippedScenariosAreComplete(t *testing.T) {
	standard := 0
	for _, s := range shippedScenarios(t) {
		text := must.Get(fs.ReadFile(Files(), s.source.file))(t)
		schema := strings.Repeat("../", strings.Count(s.source.file, "/")) + "schema.json"
		if !strings.HasPrefix(string(text), "# yaml-language-server: $schema="+schema+"\n") {
			t.Errorf("%s: the first line does not name the schema", s.Name)
		}
		if len(s.Description) < 60 {
			t.Errorf("%s: the description does not say what the scenario shows: %q", s.Name, s.Description)
		}
		if len(s.Tags) < 2 {
			t.Errorf("%s: tags %v", s.Name, s.Tags)
		}
		if slices.Contains(s.Tags, "standard") {
			standard++
		}
		if slices.Contains(s.Tags, "quick") && slices.Contains(s.Tags, "slow") {
			t.Errorf("%s: quick and slow", s.Name)
		}
		if s.Experiment != nil {
			if !slices.Contains(s.Tags, "paper") || slices.Contains(s.Tags, "standard") {
				t.Errorf("%s: tags %v, want paper and not standard", s.Name, s.Tags)
			}
			continue // its figures are expectations
		}
		bare := s.Expect
		bare.Delivered, bare.Memory = "", ""
		if s.Expect.In == nil && bare.Errors == nil && bare.Lost.IsZero() && bare.Retransmits.IsZero() && bare.Violations.IsZero() && bare.MaxTime == 0 {
			t.Errorf("%s: almost any run meets the expectations", s.Name)
		}
	}
	if standard < 30 {
		t.Errorf("%d standard scenarios", standard)
	}
}

// Every service occurs with every kind of network at least once.
func TestShippedScenariosCoverServices(t *testing.T) {
	networks := map[string]func(*Scenario) bool{
		"clean":  func(s *Scenario) bool { return len(s.Impair)+len(s.Events)+len(s.Faults) == 0 },
		"loss":   func(s *Scenario) bool { return anyImpairment(s, func(i *Impairment) bool { return i.Loss > 0 }) },
		"bursts": func(s *Scenario) bool { return anyImpairment(s, func(i *Impairment) bool { return i.Burst.Loss > 0 }) },
		"reorder": func(s *Scenario) bool {
			return anyImpairment(s, func(i *Impairment) bool { return i.Reorder > 0 && i.Duplicate > 0 })
		},
		"corrupt": func(s *Scenario) bool {
			return anyImpairment(s, func(i *Impairment) bool { return i.Corrupt > 0 && i.Truncate > 0 })
		},
		"ipv4": func(s *Scenario) bool { return s.Fabric.IPv4 && len(s.Impair) == 0 },
		"ipv4-loss": func(s *Scenario) bool {
			return s.Fabric.IPv4 && anyImpairment(s, func(i *Impairment) bool { return i.Loss > 0 })
		},
	}
	services := map[string][]string{
		"rc": {"clean", "loss", "bursts", "reorder", "corrupt", "ipv4", "ipv4-loss"}, "srq": {"clean", "loss", "bursts", "reorder", "corrupt"},
		"xrc": {"clean", "loss", "bursts", "reorder", "corrupt"}, "uc": {"clean", "loss", "bursts", "reorder", "corrupt", "ipv4", "ipv4-loss"},
		"ud": {"clean", "loss", "bursts", "reorder", "corrupt", "ipv4", "ipv4-loss"}, "calls": {"clean", "loss", "reorder"},
		"rd": {"clean", "loss", "reorder", "corrupt"},
	}
	all := shippedScenarios(t)
	for service, kinds := range services {
		uses := func(s *Scenario) bool {
			if service == "calls" {
				return s.Workload.Kind == workload.Calls
			}
			return s.Workload.Kind == workload.Random && slices.Contains(s.Workload.Services, service)
		}
		for _, kind := range kinds {
			if !slices.ContainsFunc(all, func(s *Scenario) bool { return uses(s) && networks[kind](s) }) {
				t.Errorf("no scenario has %s over a network of kind %s", service, kind)
			}
		}
	}
	for _, kind := range workload.Kinds() {
		if !slices.ContainsFunc(all, func(s *Scenario) bool { return s.Workload.Kind == kind }) {
			t.Errorf("no scenario has the workload %s", kind)
		}
	}
	for _, do := range []FaultAction{Down, Partition, SetImpair, Kill, Freeze, QPError} {
		if !slices.ContainsFunc(all, func(s *Scenario) bool { return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Do == do }) }) {
			t.Errorf("no scenario has the fault %s", do)
		}
	}
}

func anyImpairment(s *Scenario, is func(*Impairment) bool) bool {
	return slices.ContainsFunc(s.Impair, func(i Impairment) bool { return is(&i) })
}

// Defaults of cables are the same on all tiers: the topology has them.
func TestCablesHaveDefaultMTU(t *testing.T) {
	for more, want := range map[string]int{"": 4200, "  link: {rate: 1Gbit}\n": 4200, "  link: {mtu: 9000}\n": 9000, "  links: {host1: {latency: 1ms}}\n": 4200} {
		s, err := Parse("x.yaml", []byte("version: 1\nname: x\ntitle: X\nfabric:\n  kind: star\n  hosts: 2\n"+more+"workload: {kind: stream}\n"))
		if err != nil {
			t.Fatal(err)
		}
		topo := must.Get(s.Topology())(t)
		for _, c := range topo.Cables {
			if c.Link.MTU != want {
				t.Errorf("%q: %v has MTU %d, want %d", more, c.A, c.Link.MTU, want)
			}
		}
	}
}

func TestTopologyHasLinkSettings(t *testing.T) {
	s := everyKey(t)
	topo := must.Get(s.Topology())(t)
	if len(topo.Hosts) != 8 || len(topo.Hosts[0].NICs) != 2 {
		t.Errorf("%d hosts with %d NICs", len(topo.Hosts), len(topo.Hosts[0].NICs))
	}
	for port, want := range map[string]string{ // MTU, rate
		"host0/rdma1": "2048 25500000000", "host1/rdma0": "4200 25500000000", "host2/rdma1": "4200 1000",
	} {
		p := must.Get(topo.FindPort(port))(t)
		c, _ := topo.CableAt(p)
		if got := fmt.Sprint(c.Link.MTU, c.Link.RateBps); got != want {
			t.Errorf("%s: MTU and rate %s, want %s", port, got, want)
		}
		if c.Link.ECN.MaxPPM != 100_000 {
			t.Errorf("%s: ECN %+v", port, c.Link.ECN)
		}
	}
	s.Fabric.Leaves = 200
	if _, err := s.Topology(); err == nil || !strings.HasPrefix(err.Error(), "every-key.yaml:14:3: fabric: ") {
		t.Errorf("200 leaves for 8 hosts: %v, want an error with the line", err)
	}
}

const (
	docFile = "../docs/scenarios.md"
	marker  = "<!-- From here on generated from the code: go test ./scenarios -update -->\n"
)

// The reference in docs/scenarios.md is generated from the types and files.
func TestReferenceFollowsTypes(t *testing.T) {
	text := must.Get(os.ReadFile(docFile))(t)
	head, _, found := strings.Cut(string(text), marker)
	if !found {
		t.Fatalf("%s has no line %q", docFile, marker)
	}
	compareGolden(t, docFile, []byte(head+marker+reference(t)))
	for _, name := range []string{"flap-short.yaml", "paper/rashti-2010-reuse-ib-sendrecv.yaml"} {
		if !strings.Contains(head, "```yaml\n"+string(readFile(t, name))+"```\n") {
			t.Errorf("%s does not have %s as an example", docFile, name)
		}
	}
}

// sections are the parts of a file, with their headings.
var sections = []struct{ heading, def string }{
	{"The file", ""},
	{"`fabric`", "Fabric"},
	{"`fabric.link`, and each of `fabric.links`", "Link"},
	{"`ecn` of a link", "ECN"},
	{"`nic`", "NIC"},
	{"each of `impair`, and `set` of a fault", "Impairment"},
	{"`burst` of an impairment", "Burst"},
	{"each of `events`", "Event"},
	{"each of `faults`", "Fault"},
	{"`workload`", "Config"},
	{"`expect`", "Expect"},
	{"`experiment`", "Experiment"},
	{"`vary` of an experiment", "Axis"},
	{"each of `variants` of an experiment", "Variant"},
	{"each of `figures` of an experiment", "Figure"},
	{"`measure` of a figure", "Measure"},
	{"`beyond` of a measure", "Comparison"},
	{"`published` of a figure", "Published"},
	{"`violations`, `retransmits`, `reconnects`, `marked`, `lost`", "Range"},
}

func reference(t *testing.T) string {
	schema := parseSchema(t)
	defs := schema["$defs"].(object)
	if len(defs) != len(sections)-1 {
		t.Errorf("the document has %d sections, the schema %d", len(sections)-1, len(defs))
	}
	var b strings.Builder
	b.WriteString("\n## Every key\n\nKeys in bold must be given.\n")
	for _, s := range sections {
		def := schema
		if s.def != "" {
			def = defs[s.def].(object)
		}
		fmt.Fprintf(&b, "\n### %s\n\n| key | takes | meaning |\n|---|---|---|\n", s.heading)
		b.WriteString(rows(def))
	}
	b.WriteString("\nThe errors that `expect.errors` may name: " + strings.Join(ErrorNames(), ", ") + ".\n")
	b.WriteString("\n## What ships\n\n| scenario | shows | tags |\n|---|---|---|\n")
	for _, s := range shippedScenarios(t) {
		fmt.Fprintf(&b, "| [%s](../scenarios/%s) | %s | %s |\n", s.Name, s.source.file, s.Title, strings.Join(s.Tags, ", "))
	}
	return b.String()
}

// rows describes the keys of a section, required ones first.
func rows(def object) string {
	required, _ := def["required"].([]any)
	properties := def["properties"].(object)
	var first, rest string
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		p := properties[key].(object)
		meaning, _ := p["description"].(string)
		row := fmt.Sprintf("| %s | %s |\n", takes(p), strings.ReplaceAll(meaning, "|", "\\|"))
		if slices.Contains(required, any(key)) {
			first += "| **`" + key + "`** " + row
		} else {
			rest += "| `" + key + "` " + row
		}
	}
	return first + rest
}

// takes describes the values of a key.
func takes(p object) string {
	if words, ok := p["enum"].([]any); ok {
		list := make([]string, len(words))
		for i, w := range words {
			list[i] = fmt.Sprintf("`%v`", w)
		}
		return strings.Join(list, ", ")
	}
	switch p["pattern"] {
	case percentPattern:
		return "a percentage"
	case ratePattern:
		return "a rate"
	case durationPattern:
		return "a time"
	}
	switch p["type"] {
	case "integer":
		return "a number" + limits(p)
	case "number":
		return "a number"
	case "string":
		return "text"
	case "boolean":
		return "true, false"
	case "array":
		return "a list: " + takes(p["items"].(object))
	case "object":
		return "keys and values"
	}
	if p["$ref"] != nil {
		return "a section"
	}
	return "a size" + limits(p["anyOf"].([]any)[0].(object))
}

func limits(p object) string {
	least, some := p["minimum"].(float64)
	most, both := p["maximum"].(float64)
	if !some || !both {
		return ""
	}
	return fmt.Sprintf(", %d to %d", int64(least), int64(most))
}
