package scenarios

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

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
	if example := readFile(t, "flap-short.yaml"); !strings.Contains(head, "```yaml\n"+string(example)+"```\n") {
		t.Errorf("the example in %s is not flap-short.yaml", docFile)
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
	b.WriteString("\nThe errors that `expect.errors` may name: " + strings.Join(StatusNames(), ", ") + ".\n")
	b.WriteString("\n## What ships\n\n| scenario | shows | tags |\n|---|---|---|\n")
	for _, s := range shippedScenarios(t) {
		fmt.Fprintf(&b, "| [%s](../scenarios/%s.yaml) | %s | %s |\n", s.Name, s.Name, s.Title, strings.Join(s.Tags, ", "))
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
