package record

import "reflect"

// share makes equal strings of a record one: it names the same few digests again and again, and of what JSON is decoded
// into each takes room of its own.
func share(v reflect.Value, seen map[string]string) {
	switch v.Kind() {
	case reflect.String:
		text := v.String()
		if first, ok := seen[text]; ok {
			v.SetString(first)
		} else {
			seen[text] = text
		}
	case reflect.Pointer:
		if !v.IsNil() {
			share(v.Elem(), seen)
		}
	case reflect.Slice:
		for i := range v.Len() {
			share(v.Index(i), seen)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() { // not those of time.Time
				share(f, seen)
			}
		}
	}
}
