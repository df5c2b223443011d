package scenarios

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// form is how a value is written.
type form int

const (
	formSection form = iota
	formTable
	formList
	formText
	formFlag
	formNumber
	formSize
	formShare
	formRate
	formDuration
)

// formOf is how values of a type are written.
func formOf(t reflect.Type, tag reflect.StructTag) form {
	switch {
	case t.Kind() == reflect.Pointer:
		return formOf(t.Elem(), tag)
	case t == reflect.TypeFor[time.Duration]():
		return formDuration
	case t == reflect.TypeFor[Percent]():
		return formShare
	case t == reflect.TypeFor[Rate]():
		return formRate
	}
	switch t.Kind() {
	case reflect.Struct:
		return formSection
	case reflect.Map:
		return formTable
	case reflect.Slice:
		return formList
	case reflect.String:
		return formText
	case reflect.Bool:
		return formFlag
	}
	if t == reflect.TypeFor[Bytes]() || tag.Get("unit") == "bytes" {
		return formSize
	}
	return formNumber
}

// wanted says in words what a key takes.
func wanted(t reflect.Type, tag reflect.StructTag) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch formOf(t, tag) {
	case formSection:
		names := fieldsOf(t).names()
		if len(names) > 3 {
			names = append(names[:3:3], "…")
		}
		return "a section with the keys " + strings.Join(names, ", ")
	case formTable:
		return "keys with a value each"
	case formList:
		return "a list, such as [a, b]"
	case formFlag:
		return "true or false"
	case formNumber:
		if least, most, ok := rangeOf(tag); ok && least == most {
			return strconv.FormatInt(least, 10)
		}
		return "a whole number"
	case formSize:
		return "a size, such as 4096 or 4KiB"
	case formShare:
		return "a percentage, such as 0.1%"
	case formRate:
		return "a rate, such as 25Gbit"
	case formDuration:
		return "a time, such as 10ms"
	}
	if words := enumOf(tag); words != nil {
		return "one of " + strings.Join(words, ", ")
	}
	return "text"
}

// scalar fills v from one word.
func scalar(n *yaml.Node, v reflect.Value, tag reflect.StructTag) error {
	switch formOf(v.Type(), tag) {
	case formDuration:
		d, err := parseDuration(n.Value)
		v.SetInt(int64(d))
		return err
	case formShare, formRate:
		return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value))
	case formSize:
		var b Bytes
		if n.ShortTag() == "!!int" {
			if err := n.Decode((*int64)(&b)); err != nil {
				return fmt.Errorf("%s is too large a size", shown(n.Value))
			}
		} else if err := b.UnmarshalText([]byte(n.Value)); err != nil {
			return err
		}
		v.SetInt(int64(b))
		return checkRange(int64(b), tag)
	case formText:
		if n.ShortTag() != "!!str" {
			return fmt.Errorf("%s is not text: put it in quotes if it is meant to be", shown(n.Value))
		}
		v.SetString(n.Value)
		return checkText(n.Value, tag)
	case formFlag:
		if n.ShortTag() != "!!bool" {
			return fmt.Errorf("%s is neither true nor false", shown(n.Value))
		}
		return n.Decode(v.Addr().Interface())
	case formNumber:
		return number(n, v, tag)
	}
	return fmt.Errorf("expected %s, not %s", wanted(v.Type(), tag), shown(n.Value))
}

// number fills v, which is of some kind of integer.
func number(n *yaml.Node, v reflect.Value, tag reflect.StructTag) error {
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		return fmt.Errorf("%q is text: write a whole number, without quotes", n.Value)
	}
	if n.ShortTag() != "!!int" {
		return fmt.Errorf("%s is not a whole number", shown(n.Value))
	}
	if v.CanInt() {
		var i int64
		if n.Decode(&i) != nil {
			return fmt.Errorf("%s is too large a number", shown(n.Value))
		}
		v.SetInt(i)
		return checkRange(i, tag)
	}
	var u uint64
	if n.Decode(&u) != nil {
		return fmt.Errorf("%s is not a whole number from 0 to %d", shown(n.Value), ^uint64(0))
	}
	if _, most, ok := rangeOf(tag); ok {
		if err := checkRange(int64(min(u, uint64(most)+1)), tag); err != nil {
			return err
		}
	}
	v.SetUint(u)
	return nil
}

// enumOf lists the words that a key takes; nil if any.
func enumOf(tag reflect.StructTag) []string {
	if tag.Get("enum") == "" {
		return nil
	}
	return strings.Fields(tag.Get("enum"))
}

// rangeOf is the least and the largest number that a key takes.
func rangeOf(tag reflect.StructTag) (least, most int64, ok bool) {
	a, b, ok := strings.Cut(tag.Get("range"), "..")
	if !ok {
		return 0, 0, false
	}
	least, err := strconv.ParseInt(a, 10, 64)
	most, err2 := strconv.ParseInt(b, 10, 64)
	if err := errors.Join(err, err2); err != nil {
		panic(fmt.Sprintf("tag range %q: %v", tag.Get("range"), err))
	}
	return least, most, true
}

func checkRange(n int64, tag reflect.StructTag) error {
	least, most, ok := rangeOf(tag)
	switch {
	case !ok || least <= n && n <= most:
		return nil
	case least == most:
		return fmt.Errorf("%d is not %d, the only one there is", n, least)
	}
	return fmt.Errorf("%d is not in %d to %d", n, least, most)
}

// checkText holds a word against what its key takes.
func checkText(word string, tag reflect.StructTag) error {
	if words := enumOf(tag); words != nil && !slices.Contains(words, word) {
		return fmt.Errorf("%s is none of %s", shown(word), strings.Join(words, ", "))
	}
	if p := tag.Get("pattern"); p != "" && !compiled(p).MatchString(word) {
		return fmt.Errorf("%s does not fit: %s", shown(word), tag.Get("hint"))
	}
	return nil
}

var patterns sync.Map // *regexp.Regexp by what it was compiled from

// compiled is a pattern of a tag, compiled once: to do so takes longer than to read
// what it is held against, and every run reads all scenarios that there are.
func compiled(pattern string) *regexp.Regexp {
	if r, ok := patterns.Load(pattern); ok {
		return r.(*regexp.Regexp)
	}
	r := regexp.MustCompile(pattern)
	patterns.Store(pattern, r)
	return r
}
