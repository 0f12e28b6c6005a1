"""Operations: what each statement stages, from INSERT to a change of properties."""
