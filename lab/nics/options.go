package nics

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Options are settings of NICs by name, for example {"markers": true}. Each provider has
// options of its own.
type Options map[string]any

// OptionError says that a provider does not have an option.
type OptionError struct {
	Provider *Provider
	Option   string
}

// Error implements error.
func (e *OptionError) Error() string {
	return fmt.Sprintf("%s has no option %s; it has %s", e.Provider.Title, e.Option, strings.Join(e.Provider.Options, ", "))
}

// optionNames returns the JSON names of the fields of T.
func optionNames[T any]() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		names = append(names, f.Tag.Get("json"))
	}
	return names
}

// decode returns defaults with the fields set that options name.
func decode[T any](p *Provider, options Options, defaults T) (T, error) {
	for name := range options {
		if !slices.Contains(p.Options, name) {
			return defaults, &OptionError{Provider: p, Option: name}
		}
	}
	text, err := json.Marshal(options)
	if err == nil {
		err = json.Unmarshal(text, &defaults)
	}
	if err != nil {
		return defaults, fmt.Errorf("options of %s: %w", p.Title, err)
	}
	return defaults, nil
}
