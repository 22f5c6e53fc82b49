-- What a function calls is what the server itself has, whatever the caller's search path is: whoever
-- may create things in a schema there could otherwise have them called in the place of these.

DO $$
DECLARE
    function_ regprocedure;
BEGIN
    FOR function_ IN SELECT p.oid FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = 'lockstitch'::pg_catalog.regnamespace AND p.prokind = 'f'
    LOOP
        EXECUTE pg_catalog.format(
            'ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', function_
        );
    END LOOP;
END
$$;
